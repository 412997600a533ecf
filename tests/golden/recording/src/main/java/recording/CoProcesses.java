package recording;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.streaming.api.TimerService;
import org.apache.flink.streaming.api.functions.co.CoProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.operators.co.CoProcessOperator;
import org.apache.flink.streaming.api.operators.co.KeyedCoProcessOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.streaming.util.KeyedTwoInputStreamOperatorTestHarness;
import org.apache.flink.streaming.util.TwoInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Two inputs with one state and one timer service. Elements are (key, command, number). */
final class CoProcesses {
    private static final OutputTag<List<Object>> SIDE =
            new OutputTag<>("side", Types.LIST(Types.GENERIC(Object.class)));

    private final Cases cases = new Cases("co");

    static void record(Path file) throws Exception {
        CoProcesses recorder = new CoProcesses();
        recorder.chosen();
        for (int seed = 1; seed <= 160; seed++) {
            recorder.random(seed);
        }
        recorder.cases.write(file);
    }

    private interface Script {
        void run(Run run) throws Exception;
    }

    private void add(String tag, boolean keyed, Script script) throws Exception {
        try (Run run = new Run(keyed)) {
            script.run(run);
            cases.add(tag, Cases.map("keyed", keyed), run.steps);
        }
    }

    private void chosen() throws Exception {
        add("one_state_for_both_inputs", true, run -> {
            run.element(1, "a", "add", 3, 1);
            run.element(2, "a", "add", 4, 1);
            run.element(2, "b", "add", 1, 1);
            run.element(2, "a", "clear", 0, 2);
            run.element(1, "a", "read", 0, 3);
            run.element(1, "a", "side", 7, 3);
        });
        add("same_timer_from_both_inputs_fires_once", true, run -> {
            run.element(1, "a", "event_timer", 10, 1);
            run.element(2, "a", "event_timer", 10, 1);
            run.element(2, "b", "event_timer", 10, 1);
            run.watermark(1, 10);
            run.watermark(2, 9);
            run.watermark(2, 10);
        });
        add("one_input_deletes_the_timer_of_the_other", true, run -> {
            run.element(1, "a", "event_timer", 10, 1);
            run.element(1, "a", "processing_timer", 10, 1);
            run.element(2, "b", "delete_event_timer", 10, 1);
            run.element(2, "a", "delete_event_timer", 10, 1);
            run.element(2, "a", "delete_processing_timer", 10, 1);
            run.element(2, "a", "delete_event_timer", 11, 1);
            run.watermark(1, 20);
            run.watermark(2, 20);
            run.processingTime(20);
        });
        add("event_timer_behind_the_watermark_waits_for_the_next", true, run -> {
            run.watermark(1, 10);
            run.watermark(2, 10);
            run.element(1, "a", "event_timer", 10, 12);
            run.element(2, "a", "event_timer", 3, 5);
            run.watermark(1, 11);
            run.watermark(2, 10);
            run.watermark(2, 11);
        });
        add("timers_that_register_timers", true, run -> {
            run.element(1, "a", "add", 35, 1);
            run.element(1, "a", "event_timer", 10, 1);
            run.element(2, "a", "event_timer", 18, 1);
            run.watermark(1, 21);
            run.watermark(2, 21);
            run.watermark(1, 100);
            run.watermark(2, 100);
            run.element(2, "a", "add", 20, 1);
            run.element(2, "a", "processing_timer", 5, 1);
            run.processingTime(12);
            run.processingTime(100);
        });
        add("timers_of_one_advance_in_order", true, run -> {
            for (long timestamp : new long[] {9, 3, 7, 5, 1}) {
                run.element(1, "a", "event_timer", timestamp, 0);
                run.element(2, "b", "event_timer", timestamp + 1, 0);
            }
            run.watermark(2, 6);
            run.watermark(1, 6);
            run.watermark(1, 50);
            run.watermark(2, 50);
        });
        add("domains_are_apart", true, run -> {
            run.element(1, "a", "event_timer", 10, 1);
            run.element(1, "a", "processing_timer", 10, 1);
            run.processingTime(10);
            run.watermark(1, 10);
            run.watermark(2, 10);
        });
        add("an_idle_input_does_not_hold_timers_back", true, run -> {
            run.element(1, "a", "event_timer", 10, 1);
            run.element(2, "a", "event_timer", 20, 1);
            run.watermark(1, 15);
            run.idle(2);
            run.watermark(1, 20);
            run.active(2);
            run.element(2, "a", "event_timer", 25, 1);
            run.watermark(1, 30);
            run.watermark(2, 12);
            run.watermark(2, 26);
        });
        add("restored", true, run -> {
            run.element(1, "a", "add", 5, 1);
            run.element(2, "a", "event_timer", 10, 1);
            run.element(2, "a", "processing_timer", 10, 1);
            run.watermark(1, 4);
            run.watermark(2, 6);
            run.processingTime(3);
            run.restore();
            run.element(2, "a", "read", 0, 7);
            run.watermark(1, 9);
            run.watermark(2, 10);
            run.watermark(1, 10);
            run.restore();
            run.processingTime(10);
        });
        add("end_of_input", true, run -> {
            run.element(1, "a", "event_timer", Long.MAX_VALUE, 1);
            run.element(2, "a", "event_timer", 100, 1);
            run.element(2, "a", "processing_timer", 100, 1);
            run.watermark(1, Long.MAX_VALUE);
            run.watermark(2, Long.MAX_VALUE);
        });
        add("without_keys", false, run -> {
            run.element(1, "a", "read", 1, 5);
            run.element(2, "b", "read", 2, 3);
            run.watermark(1, 4);
            run.element(2, "b", "side", 3, 2);
            run.watermark(2, 3);
            run.processingTime(7);
            run.element(1, "b", "read", 4, 1);
            run.element(2, "b", "side", 5, 9);
        });
        for (String command :
                List.of("event_timer", "processing_timer", "delete_event_timer", "delete_processing_timer", "add")) {
            add("without_keys_no_timers_and_no_keyed_state", false, run -> run.element(1, "a", command, 5, 1));
        }
    }

    private void random(int seed) throws Exception {
        Random random = new Random(seed);
        // An input that was idle would become active by the watermark that a restore sends again.
        boolean idleness = random.nextInt(4) == 0;
        add("random", true, run -> {
            long now = 0;
            int length = 12 + random.nextInt(24);
            for (int i = 0; i < length; i++) {
                int kind = random.nextInt(24);
                int input = 1 + random.nextInt(2);
                if (kind < 6) {
                    run.watermark(input, Math.max(run.watermark[input], now - 6 + random.nextInt(8)));
                } else if (kind < 8) {
                    run.processingTime(run.processingTime + random.nextInt(8));
                } else if (kind == 8 && idleness) {
                    run.idle(input);
                } else if (kind == 9 && idleness) {
                    run.active(input);
                } else if (kind == 8) {
                    long next = 1 + Math.max(run.watermark[1], run.watermark[2]);
                    run.watermark(1, next);
                    run.watermark(2, next);
                    run.restore();
                } else {
                    now += random.nextInt(3);
                    randomElement(random, run, input, now);
                }
            }
            run.watermark(1, now + 1_000);
            run.watermark(2, now + 1_000);
            run.processingTime(run.processingTime + 1_000);
        });
    }

    private void randomElement(Random random, Run run, int input, long now) throws Exception {
        String key = random.nextInt(3) > 0 ? "a" : "b";
        switch (random.nextInt(10)) {
            case 0, 1 -> run.element(input, key, "add", 1 + random.nextInt(15), now);
            case 2 -> run.element(input, key, random.nextBoolean() ? "read" : "side", i(random, 9), now);
            case 3 -> run.element(input, key, "clear", 0, now);
            case 4, 5 -> run.element(input, key, "event_timer", now - 3 + i(random, 8), now);
            case 6, 7 -> run.element(input, key, "processing_timer", run.processingTime + 1 + i(random, 5), now);
            case 8 -> run.element(input, key, "delete_event_timer", now - 3 + i(random, 8), now);
            default -> run.element(
                    input, key, "delete_processing_timer", run.processingTime + 1 + i(random, 5), now);
        }
    }

    private static long i(Random random, int bound) {
        return random.nextInt(bound);
    }

    private static final class Run implements AutoCloseable {
        final List<Map<String, Object>> steps = new ArrayList<>();
        final long[] watermark = {0, Long.MIN_VALUE, Long.MIN_VALUE};
        long processingTime;
        private final boolean keyed;
        private TwoInputStreamOperatorTestHarness<
                        Tuple3<String, String, Long>, Tuple3<String, String, Long>, List<Object>>
                harness;

        Run(boolean keyed) throws Exception {
            this.keyed = keyed;
            harness = harness();
            harness.open();
            harness.setProcessingTime(0);
        }

        void element(int input, String key, String command, long number, long timestamp) throws Exception {
            var element = Tuple3.of(key, command, number);
            var step =
                    Cases.map(
                            "op", "element", "input", input, "key", key, "command", command, "number", number, "ts",
                            timestamp);
            try {
                if (input == 1) {
                    harness.processElement1(element, timestamp);
                } else {
                    harness.processElement2(element, timestamp);
                }
            } catch (UnsupportedOperationException | NullPointerException refused) {
                step.put("raises", true);
            }
            note(step);
        }

        void watermark(int input, long timestamp) throws Exception {
            send(input, timestamp);
            note(Cases.map("op", "watermark", "input", input, "ts", timestamp));
        }

        void idle(int input) throws Exception {
            send(input, WatermarkStatus.IDLE);
            note(Cases.map("op", "idle", "input", input));
        }

        void active(int input) throws Exception {
            send(input, WatermarkStatus.ACTIVE);
            note(Cases.map("op", "active", "input", input));
        }

        void processingTime(long time) throws Exception {
            processingTime = time;
            harness.setProcessingTime(time);
            note(Cases.map("op", "processing_time", "ts", time));
        }

        void restore() throws Exception {
            OperatorSubtaskState snapshot = harness.snapshot(1, 1);
            harness.close();
            harness = harness();
            harness.initializeState(snapshot);
            harness.open();
            harness.setProcessingTime(processingTime);
            send(1, watermark[1]);
            send(2, watermark[2]);
            note(Cases.map("op", "restore"));
            Cases.requireSame(null, steps.get(steps.size() - 1).get("out"));
        }

        @Override
        public void close() throws Exception {
            harness.close();
        }

        private void send(int input, long timestamp) throws Exception {
            watermark[input] = timestamp;
            if (input == 1) {
                harness.processWatermark1(new Watermark(timestamp));
            } else {
                harness.processWatermark2(new Watermark(timestamp));
            }
        }

        private void send(int input, WatermarkStatus status) throws Exception {
            if (input == 1) {
                harness.processWatermarkStatus1(status);
            } else {
                harness.processWatermarkStatus2(status);
            }
        }

        private void note(Map<String, Object> step) {
            List<Object> out = new ArrayList<>();
            for (Object output : harness.getOutput()) {
                if (output instanceof StreamRecord<?> record) {
                    List<Object> row = new ArrayList<>((List<?>) record.getValue());
                    row.add(record.hasTimestamp() ? record.getTimestamp() : null);
                    out.add(row);
                }
            }
            harness.getOutput().clear();
            List<Object> side = new ArrayList<>();
            if (harness.getSideOutput(SIDE) != null) {
                harness.getSideOutput(SIDE).forEach(record -> side.add(record.getValue()));
                harness.getSideOutput(SIDE).clear();
            }
            step.putAll(Cases.map("out", out, "side", side));
            steps.add(step);
        }

        private TwoInputStreamOperatorTestHarness<
                        Tuple3<String, String, Long>, Tuple3<String, String, Long>, List<Object>>
                harness() throws Exception {
            TwoInputStreamOperatorTestHarness<
                            Tuple3<String, String, Long>, Tuple3<String, String, Long>, List<Object>>
                    harness =
                            keyed
                                    ? new KeyedTwoInputStreamOperatorTestHarness<>(
                                            new KeyedCoProcessOperator<>(new Keyed()),
                                            element -> element.f0,
                                            element -> element.f0,
                                            Types.STRING)
                                    : new TwoInputStreamOperatorTestHarness<>(
                                            new CoProcessOperator<>(new Unkeyed()));
            harness.setup();
            return harness;
        }
    }

    /** Obeys commands; the README of the vectors describes it so that it can be written in another language. */
    private static final class Keyed
            extends KeyedCoProcessFunction<
                    String, Tuple3<String, String, Long>, Tuple3<String, String, Long>, List<Object>> {
        private transient ValueState<Long> sum;

        @Override
        public void open(OpenContext context) {
            sum = getRuntimeContext().getState(new ValueStateDescriptor<>("sum", Types.LONG));
        }

        @Override
        public void processElement1(
                Tuple3<String, String, Long> element, Context context, Collector<List<Object>> out) throws Exception {
            obey(1, element, context, out);
        }

        @Override
        public void processElement2(
                Tuple3<String, String, Long> element, Context context, Collector<List<Object>> out) throws Exception {
            obey(2, element, context, out);
        }

        private void obey(int input, Tuple3<String, String, Long> element, Context context, Collector<List<Object>> out)
                throws Exception {
            TimerService timers = context.timerService();
            long number = element.f2;
            switch (element.f1) {
                case "add" -> sum.update((sum.value() == null ? 0 : sum.value()) + number);
                case "clear" -> sum.clear();
                case "side" -> context.output(SIDE, Arrays.asList(input, context.getCurrentKey(), number));
                case "event_timer" -> timers.registerEventTimeTimer(number);
                case "processing_timer" -> timers.registerProcessingTimeTimer(number);
                case "delete_event_timer" -> timers.deleteEventTimeTimer(number);
                case "delete_processing_timer" -> timers.deleteProcessingTimeTimer(number);
                default -> {}
            }
            out.collect(
                    Arrays.asList(
                            "element" + input,
                            context.getCurrentKey(),
                            sum.value(),
                            context.timestamp(),
                            timers.currentWatermark(),
                            timers.currentProcessingTime()));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<List<Object>> out) throws Exception {
            TimerService timers = context.timerService();
            boolean eventTime = context.timeDomain() == TimeDomain.EVENT_TIME;
            out.collect(
                    Arrays.asList(
                            eventTime ? "event_timer" : "processing_timer",
                            context.getCurrentKey(),
                            sum.value(),
                            timestamp,
                            timers.currentWatermark(),
                            timers.currentProcessingTime()));
            if (sum.value() != null && sum.value() >= 10) {
                sum.update(sum.value() - 10);
                if (eventTime) {
                    timers.registerEventTimeTimer(timestamp + 5);
                } else {
                    timers.registerProcessingTimeTimer(timestamp + 5);
                }
            }
        }
    }

    /** The same commands without keys: reads and side outputs work, timers and keyed state are refused. */
    private static final class Unkeyed
            extends CoProcessFunction<Tuple3<String, String, Long>, Tuple3<String, String, Long>, List<Object>> {
        @Override
        public void processElement1(
                Tuple3<String, String, Long> element, Context context, Collector<List<Object>> out) {
            obey(1, element, context, out);
        }

        @Override
        public void processElement2(
                Tuple3<String, String, Long> element, Context context, Collector<List<Object>> out) {
            obey(2, element, context, out);
        }

        private void obey(
                int input, Tuple3<String, String, Long> element, Context context, Collector<List<Object>> out) {
            TimerService timers = context.timerService();
            long number = element.f2;
            switch (element.f1) {
                case "add" -> getRuntimeContext().getState(new ValueStateDescriptor<>("sum", Types.LONG));
                case "side" -> context.output(SIDE, Arrays.asList(input, element.f0, number));
                case "event_timer" -> timers.registerEventTimeTimer(number);
                case "processing_timer" -> timers.registerProcessingTimeTimer(number);
                case "delete_event_timer" -> timers.deleteEventTimeTimer(number);
                case "delete_processing_timer" -> timers.deleteProcessingTimeTimer(number);
                default -> {}
            }
            out.collect(
                    Arrays.asList(
                            "element" + input,
                            element.f0,
                            null,
                            context.timestamp(),
                            timers.currentWatermark(),
                            timers.currentProcessingTime()));
        }
    }
}
