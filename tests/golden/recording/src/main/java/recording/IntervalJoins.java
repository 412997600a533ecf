package recording;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.operators.co.IntervalJoinOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedTwoInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** The interval join. Elements are (key, value). */
final class IntervalJoins {
    private static final TypeInformation<Tuple2<String, Long>> ELEMENT = TypeInformation.of(new TypeHint<>() {});
    private static final OutputTag<Tuple2<String, Long>> LATE_LEFT = new OutputTag<>("late-left", ELEMENT);
    private static final OutputTag<Tuple2<String, Long>> LATE_RIGHT = new OutputTag<>("late-right", ELEMENT);
    private static final String[] KEYS = {"a", "b"};

    private final Cases cases = new Cases("join");

    static void record(Path file) throws Exception {
        IntervalJoins recorder = new IntervalJoins();
        recorder.chosen();
        for (int seed = 1; seed <= 200; seed++) {
            recorder.random(seed);
        }
        recorder.cases.write(file);
    }

    private interface Script {
        void run(Run run) throws Exception;
    }

    private record Bounds(long lower, long upper, boolean lowerInclusive, boolean upperInclusive) {}

    private void add(String tag, Bounds bounds, Script script) throws Exception {
        Map<String, Object> parameters =
                Cases.map(
                        "lower_ms", bounds.lower,
                        "upper_ms", bounds.upper,
                        "lower_inclusive", bounds.lowerInclusive,
                        "upper_inclusive", bounds.upperInclusive);
        try (Run run = new Run(bounds)) {
            script.run(run);
            cases.add(tag, parameters, run.steps);
        }
    }

    private void chosen() throws Exception {
        for (boolean lowerInclusive : new boolean[] {true, false}) {
            for (boolean upperInclusive : new boolean[] {true, false}) {
                add("edges", new Bounds(-2, 3, lowerInclusive, upperInclusive), run -> {
                    run.element(1, "a", 10);
                    for (long timestamp = 7; timestamp <= 14; timestamp++) {
                        run.element(2, "a", timestamp);
                    }
                    run.element(1, "a", 9);
                    run.element(2, "b", 10);
                    run.watermarks(9, 17);
                });
                add("clean_up", new Bounds(-2, 3, lowerInclusive, upperInclusive), run -> {
                    run.element(1, "a", 10);
                    run.element(2, "a", 10);
                    run.watermarks(9, 17);
                });
                add("bounds_ahead", new Bounds(2, 5, lowerInclusive, upperInclusive), run -> {
                    run.element(1, "a", 10);
                    run.element(2, "a", 10);
                    run.element(2, "a", 12);
                    run.element(2, "a", 15);
                    run.watermarks(9, 18);
                });
                add("bounds_behind", new Bounds(-5, -2, lowerInclusive, upperInclusive), run -> {
                    run.element(1, "a", 10);
                    run.element(2, "a", 10);
                    run.element(2, "a", 8);
                    run.element(2, "a", 5);
                    run.watermarks(4, 18);
                });
                add("one_point", new Bounds(0, 0, lowerInclusive, upperInclusive), run -> {
                    run.element(1, "a", 10);
                    run.element(2, "a", 10);
                    run.element(2, "a", 11);
                    run.watermarks(9, 12);
                });
            }
        }
        add("late_is_behind_the_watermark", new Bounds(-2, 2, true, true), run -> {
            run.element(1, "a", 9);
            run.watermarks(10, 10);
            run.element(1, "a", 10);
            run.element(1, "a", 9);
            run.element(2, "a", 10);
            run.element(2, "a", 9);
            run.watermarks(11, 14);
        });
        add("one_watermark_does_not_move_time", new Bounds(-2, 2, true, true), run -> {
            run.element(1, "a", 0);
            run.watermark(1, 100);
            run.element(1, "a", 1);
            run.element(2, "a", 2);
            run.watermark(2, 3);
            run.element(1, "a", 2);
            run.element(2, "a", 3);
            run.watermark(2, 200);
            run.element(2, "a", 99);
            run.element(2, "a", 100);
        });
        add("equal_elements_each_join", new Bounds(0, 0, true, true), run -> {
            run.element(1, "a", 5);
            run.element(1, "a", 5);
            run.element(2, "a", 5);
            run.element(2, "a", 5);
            run.watermarks(5, 5);
        });
        add("restored", new Bounds(-5, 5, true, true), run -> {
            run.element(1, "a", 5);
            run.element(2, "b", 6);
            run.watermarks(3, 3);
            run.restore();
            run.element(2, "a", 2);
            run.element(2, "a", 9);
            run.element(1, "b", 6);
            run.watermarks(10, 10);
            run.restore();
            run.watermarks(11, 20);
        });
        add("end_of_input", new Bounds(-5, 5, true, true), run -> {
            run.element(1, "a", 5);
            run.element(2, "a", 50);
            run.watermark(1, Long.MAX_VALUE);
            run.element(2, "a", 7);
            run.watermark(2, Long.MAX_VALUE);
        });
    }

    private void random(int seed) throws Exception {
        Random random = new Random(seed);
        long lower = -9 + random.nextInt(14);
        var bounds = new Bounds(lower, lower + random.nextInt(12), random.nextBoolean(), random.nextBoolean());
        add("random", bounds, run -> {
            long now = random.nextInt(5);
            int length = 10 + random.nextInt(20);
            for (int i = 0; i < length; i++) {
                int kind = random.nextInt(20);
                int input = 1 + random.nextInt(2);
                if (kind == 0) {
                    long next = 1 + Math.max(run.watermark[1], run.watermark[2]);
                    run.watermarks(next, next);
                    run.restore();
                } else if (kind < 7) {
                    run.watermark(input, Math.max(run.watermark[input], now - 8 + random.nextInt(10)));
                } else {
                    now += random.nextInt(4);
                    run.element(input, KEYS[random.nextInt(5) / 4], now - random.nextInt(9));
                }
            }
            run.watermarks(now + 100, now + 100);
        });
    }

    private static final class Run implements AutoCloseable {
        final List<Map<String, Object>> steps = new ArrayList<>();
        final long[] watermark = {0, Long.MIN_VALUE, Long.MIN_VALUE};
        private final Bounds bounds;
        private long value;
        private KeyedTwoInputStreamOperatorTestHarness<
                        String, Tuple2<String, Long>, Tuple2<String, Long>, List<Long>>
                harness;

        Run(Bounds bounds) throws Exception {
            this.bounds = bounds;
            harness = harness();
            harness.open();
        }

        void element(int input, String key, long timestamp) throws Exception {
            value++;
            if (input == 1) {
                harness.processElement1(Tuple2.of(key, value), timestamp);
            } else {
                harness.processElement2(Tuple2.of(key, value), timestamp);
            }
            note(Cases.map("op", "element", "input", input, "key", key, "value", value, "ts", timestamp), false);
        }

        void watermark(int input, long timestamp) throws Exception {
            send(input, timestamp);
            note(Cases.map("op", "watermark", "input", input, "ts", timestamp), true);
        }

        /** Both inputs' watermarks from one timestamp to another. */
        void watermarks(long from, long to) throws Exception {
            for (long timestamp = from; timestamp <= to; timestamp++) {
                watermark(1, timestamp);
                watermark(2, timestamp);
            }
        }

        void restore() throws Exception {
            var before = List.of(buffered("getLeftBuffer"), buffered("getRightBuffer"));
            OperatorSubtaskState snapshot = harness.snapshot(1, 1);
            harness.close();
            harness = harness();
            harness.initializeState(snapshot);
            harness.open();
            send(1, watermark[1]);
            send(2, watermark[2]);
            note(Cases.map("op", "restore"), true);
            Cases.requireSame(before, steps.get(steps.size() - 1).get("buffered"));
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

        private void note(Map<String, Object> step, boolean withBuffered) throws Exception {
            List<Object> out = new ArrayList<>();
            for (Object output : harness.getOutput()) {
                if (output instanceof StreamRecord<?> record) {
                    List<Object> row = new ArrayList<>((List<?>) record.getValue());
                    row.add(record.getTimestamp());
                    out.add(row);
                }
            }
            harness.getOutput().clear();
            List<Object> late = new ArrayList<>();
            for (var tag : List.of(LATE_LEFT, LATE_RIGHT)) {
                if (harness.getSideOutput(tag) != null) {
                    harness.getSideOutput(tag).forEach(record -> late.add(record.getValue().f1));
                    harness.getSideOutput(tag).clear();
                }
            }
            step.putAll(Cases.map("out", out, "late", late));
            if (withBuffered) {
                step.put("buffered", List.of(buffered("getLeftBuffer"), buffered("getRightBuffer")));
            }
            steps.add(step);
        }

        private int buffered(String buffer) throws Exception {
            Method method = IntervalJoinOperator.class.getDeclaredMethod(buffer);
            method.setAccessible(true);
            int entries = 0;
            for (String key : KEYS) {
                harness.getOperator().setCurrentKey(key);
                for (var sameTimestamp : ((MapState<?, ?>) method.invoke(harness.getOperator())).values()) {
                    entries += ((List<?>) sameTimestamp).size();
                }
            }
            return entries;
        }

        private KeyedTwoInputStreamOperatorTestHarness<
                        String, Tuple2<String, Long>, Tuple2<String, Long>, List<Long>>
                harness() throws Exception {
            var serializer = ELEMENT.createSerializer(new SerializerConfigImpl());
            var operator =
                    new IntervalJoinOperator<String, Tuple2<String, Long>, Tuple2<String, Long>, List<Long>>(
                            bounds.lower,
                            bounds.upper,
                            bounds.lowerInclusive,
                            bounds.upperInclusive,
                            LATE_LEFT,
                            LATE_RIGHT,
                            serializer,
                            serializer,
                            new Pair());
            var harness =
                    new KeyedTwoInputStreamOperatorTestHarness<>(
                            operator, element -> element.f0, element -> element.f0, Types.STRING);
            harness.setup();
            return harness;
        }
    }

    private static final class Pair
            extends ProcessJoinFunction<Tuple2<String, Long>, Tuple2<String, Long>, List<Long>> {
        @Override
        public void processElement(
                Tuple2<String, Long> left, Tuple2<String, Long> right, Context context, Collector<List<Long>> out) {
            out.collect(List.of(left.f1, right.f1));
        }
    }
}
