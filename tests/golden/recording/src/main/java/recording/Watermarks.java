package recording;

import org.apache.flink.api.common.eventtime.BoundedOutOfOrdernessWatermarks;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarksWithIdleness;
import org.apache.flink.runtime.event.WatermarkEvent;
import org.apache.flink.runtime.io.network.partition.ResultSubpartitionIndexSet;
import org.apache.flink.streaming.api.functions.co.CoProcessFunction;
import org.apache.flink.streaming.api.operators.co.CoProcessOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.io.PushingAsyncDataInput.DataOutput;
import org.apache.flink.streaming.runtime.streamrecord.LatencyMarker;
import org.apache.flink.streaming.runtime.streamrecord.RecordAttributes;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.StatusWatermarkValve;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.streaming.util.TwoInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.apache.flink.util.clock.RelativeClock;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Watermarks of several inputs, with idle ones among them, and how a source finds out that it is idle. */
final class Watermarks {
    private final Cases cases = new Cases("watermarks");

    static void record(Path file) throws Exception {
        Watermarks recorder = new Watermarks();
        for (String kind : List.of("inputs", "channels")) {
            recorder.chosen(kind);
        }
        for (int seed = 1; seed <= 150; seed++) {
            recorder.random(seed);
        }
        recorder.idleness();
        recorder.cases.write(file);
    }

    private interface Script {
        void run(Run run) throws Exception;
    }

    private void add(String tag, String kind, int inputs, Script script) throws Exception {
        Run run = new Run(kind.equals("inputs") ? new Inputs() : new Channels(inputs));
        script.run(run);
        cases.add(tag, Cases.map("kind", kind, "inputs", inputs), run.steps);
    }

    private void chosen(String kind) throws Exception {
        add("least", kind, 2, run -> {
            run.watermark(1, 10);
            run.watermark(2, 5);
            run.watermark(2, 20);
            run.watermark(1, 15);
        });
        add("never_back", kind, 2, run -> {
            run.watermark(1, 10);
            run.watermark(2, 10);
            run.watermark(1, 5);
            run.watermark(2, 12);
            run.watermark(1, 11);
        });
        add("idle_is_left_out", kind, 2, run -> {
            run.watermark(1, 10);
            run.idle(2);
            run.watermark(1, 12);
        });
        add("idle_behind_lets_time_jump", kind, 2, run -> {
            run.watermark(1, 10);
            run.watermark(2, 4);
            run.idle(2);
        });
        add("idle_ahead_changes_nothing", kind, 2, run -> {
            run.watermark(1, 4);
            run.watermark(2, 10);
            run.idle(2);
            run.watermark(1, 7);
            run.watermark(1, 12);
        });
        add("active_again_behind", kind, 2, run -> {
            run.watermark(1, 4);
            run.watermark(2, 4);
            run.idle(2);
            run.watermark(1, 10);
            run.active(2);
            run.watermark(1, 20);
            run.watermark(2, 8);
            run.watermark(1, 22);
            run.watermark(2, 15);
            run.watermark(2, 30);
        });
        add("active_again_behind_by_an_idle_watermark", kind, 2, run -> {
            run.watermark(1, 4);
            run.watermark(2, 4);
            run.idle(2);
            run.watermark(1, 10);
            run.watermark(2, 30);
            run.watermark(1, 20);
            run.active(2);
            run.watermark(1, 25);
            run.watermark(2, 31);
            run.watermark(1, 40);
        });
        add("all_idle", kind, 2, run -> {
            run.watermark(1, 10);
            run.watermark(2, 4);
            run.idle(1);
            run.idle(2);
            run.active(2);
            run.watermark(2, 8);
            run.active(1);
            run.watermark(2, 12);
            run.watermark(1, 11);
        });
        add("all_idle_the_one_behind_first", kind, 2, run -> {
            run.watermark(1, 10);
            run.watermark(2, 4);
            run.idle(2);
            run.idle(1);
            run.active(1);
            run.watermark(1, 20);
            run.active(2);
            run.watermark(2, 30);
        });
        add("all_idle_before_any_watermark", kind, 2, run -> {
            run.idle(1);
            run.idle(2);
            run.active(1);
            run.watermark(1, 3);
        });
        add("twice", kind, 2, run -> {
            run.active(1);
            run.watermark(1, 5);
            run.idle(2);
            run.idle(2);
            run.idle(1);
            run.idle(1);
            run.active(1);
            run.active(1);
        });
        add("end_of_one_input", kind, 2, run -> {
            run.watermark(1, Long.MAX_VALUE);
            run.watermark(2, 7);
            run.idle(2);
            run.watermark(2, Long.MAX_VALUE);
        });
    }

    private void random(int seed) throws Exception {
        Random random = new Random(seed);
        String kind = seed % 3 == 0 ? "inputs" : "channels";
        int inputs = kind.equals("inputs") ? 2 : 2 + random.nextInt(3);
        add("random", kind, inputs, run -> {
            long now = 0;
            int length = 12 + random.nextInt(24);
            for (int i = 0; i < length; i++) {
                int input = 1 + random.nextInt(inputs);
                switch (random.nextInt(8)) {
                    case 0, 1 -> run.idle(input);
                    case 2 -> run.active(input);
                    default -> {
                        now += random.nextInt(4);
                        run.watermark(input, now - random.nextInt(10));
                    }
                }
            }
        });
    }

    /** A source that asks its clock every so often whether it has been idle for long enough. */
    private void idleness() throws Exception {
        for (int seed = 1; seed <= 30; seed++) {
            Random random = new Random(seed);
            long idleAfter = 3 + random.nextInt(10);
            long delay = random.nextInt(4);
            Source source = new Source(idleAfter, delay);
            long now = 0;
            for (int i = 0; i < 20; i++) {
                source.clock += random.nextInt(6);
                if (random.nextInt(3) == 0) {
                    now += random.nextInt(5);
                    source.event(now - random.nextInt(6));
                } else {
                    source.periodic();
                }
            }
            cases.add(
                    "idleness",
                    Cases.map("kind", "source", "idle_after_ms", idleAfter, "out_of_orderness_ms", delay),
                    source.steps);
        }
    }

    /** What can be fed with watermarks and statuses; inputs count from 1. */
    private interface Combining {
        void watermark(int input, long timestamp) throws Exception;

        void status(int input, WatermarkStatus status) throws Exception;

        /** Returns what came out since the last call: watermarks, "idle" and "active". */
        List<Object> out();
    }

    private static final class Run {
        final List<Map<String, Object>> steps = new ArrayList<>();
        private final Combining combining;

        Run(Combining combining) {
            this.combining = combining;
        }

        void watermark(int input, long timestamp) throws Exception {
            combining.watermark(input, timestamp);
            steps.add(Cases.map("op", "watermark", "input", input, "ts", timestamp, "out", combining.out()));
        }

        void idle(int input) throws Exception {
            combining.status(input, WatermarkStatus.IDLE);
            steps.add(Cases.map("op", "idle", "input", input, "out", combining.out()));
        }

        void active(int input) throws Exception {
            combining.status(input, WatermarkStatus.ACTIVE);
            steps.add(Cases.map("op", "active", "input", input, "out", combining.out()));
        }
    }

    /** The two inputs of an operator. */
    private static final class Inputs implements Combining {
        private final TwoInputStreamOperatorTestHarness<Long, Long, Long> harness =
                new TwoInputStreamOperatorTestHarness<>(new CoProcessOperator<>(new Nothing()));

        Inputs() throws Exception {
            harness.open();
        }

        @Override
        public void watermark(int input, long timestamp) throws Exception {
            if (input == 1) {
                harness.processWatermark1(new Watermark(timestamp));
            } else {
                harness.processWatermark2(new Watermark(timestamp));
            }
        }

        @Override
        public void status(int input, WatermarkStatus status) throws Exception {
            if (input == 1) {
                harness.processWatermarkStatus1(status);
            } else {
                harness.processWatermarkStatus2(status);
            }
        }

        @Override
        public List<Object> out() {
            List<Object> out = new ArrayList<>();
            harness.getOutput().forEach(output -> out.add(readable(output)));
            harness.getOutput().clear();
            return out;
        }
    }

    private static Object readable(Object output) {
        if (output instanceof Watermark watermark) {
            return watermark.getTimestamp();
        }
        return ((WatermarkStatus) output).isIdle() ? "idle" : "active";
    }

    private static final class Nothing extends CoProcessFunction<Long, Long, Long> {
        @Override
        public void processElement1(Long element, Context context, Collector<Long> out) {}

        @Override
        public void processElement2(Long element, Context context, Collector<Long> out) {}
    }

    /** The channels of one input: the subtasks before it, and the streams of a union. */
    private static final class Channels implements Combining, DataOutput<Object> {
        private final StatusWatermarkValve valve;
        private List<Object> out = new ArrayList<>();

        Channels(int channels) {
            var each = new ResultSubpartitionIndexSet[channels];
            for (int i = 0; i < channels; i++) {
                each[i] = new ResultSubpartitionIndexSet(0);
            }
            valve = new StatusWatermarkValve(each);
        }

        @Override
        public void watermark(int input, long timestamp) throws Exception {
            valve.inputWatermark(new Watermark(timestamp), input - 1, this);
        }

        @Override
        public void status(int input, WatermarkStatus status) throws Exception {
            valve.inputWatermarkStatus(status, input - 1, this);
        }

        @Override
        public List<Object> out() {
            List<Object> taken = out;
            out = new ArrayList<>();
            return taken;
        }

        @Override
        public void emitWatermark(Watermark watermark) {
            out.add(readable(watermark));
        }

        @Override
        public void emitWatermarkStatus(WatermarkStatus status) {
            out.add(readable(status));
        }

        @Override
        public void emitRecord(StreamRecord<Object> record) {}

        @Override
        public void emitLatencyMarker(LatencyMarker marker) {}

        @Override
        public void emitRecordAttributes(RecordAttributes attributes) {}

        @Override
        public void emitWatermark(WatermarkEvent event) {}
    }

    private static final class Source implements WatermarkOutput, RelativeClock {
        final List<Map<String, Object>> steps = new ArrayList<>();
        long clock;
        private final WatermarksWithIdleness<Object> generator;
        private List<Object> out = new ArrayList<>();

        Source(long idleAfter, long delay) {
            generator =
                    new WatermarksWithIdleness<>(
                            new BoundedOutOfOrdernessWatermarks<>(Duration.ofMillis(delay)),
                            Duration.ofMillis(idleAfter),
                            this);
        }

        void event(long timestamp) {
            generator.onEvent(this, timestamp, this);
            note(Cases.map("op", "event", "clock", clock, "ts", timestamp));
        }

        void periodic() {
            generator.onPeriodicEmit(this);
            note(Cases.map("op", "periodic", "clock", clock));
        }

        private void note(Map<String, Object> step) {
            step.putAll(Cases.map("out", out));
            steps.add(step);
            out = new ArrayList<>();
        }

        @Override
        public void emitWatermark(org.apache.flink.api.common.eventtime.Watermark watermark) {
            out.add(watermark.getTimestamp());
        }

        @Override
        public void markIdle() {
            out.add("idle");
        }

        @Override
        public void markActive() {
            out.add("active");
        }

        @Override
        public long relativeTimeMillis() {
            return clock;
        }

        @Override
        public long relativeTimeNanos() {
            return clock * 1_000_000;
        }
    }
}
