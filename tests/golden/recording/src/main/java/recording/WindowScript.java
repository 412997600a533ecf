package recording;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.windowing.assigners.MergingWindowAssigner;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.streaming.runtime.operators.windowing.WindowOperatorBuilder;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** Runs Flink's window operator step by step and notes what each step puts out. Elements are (key, value, gap). */
final class WindowScript implements AutoCloseable {
    private static final TypeInformation<Tuple3<String, Long, Long>> ELEMENT =
            new TupleTypeInfo<>(Types.STRING, Types.LONG, Types.LONG);
    private static final OutputTag<Tuple3<String, Long, Long>> LATE = new OutputTag<>("late", ELEMENT);

    private final Settings settings;
    private final List<Map<String, Object>> steps = new ArrayList<>();
    private KeyedOneInputStreamOperatorTestHarness<String, Tuple3<String, Long, Long>, List<Object>> harness;
    private long watermark = Long.MIN_VALUE;
    private long processingTime;
    private long value;

    /** {@code contents} is "sum" or "list"; {@code keep} is the size of a count evictor, 0 for none. */
    record Settings(
            WindowAssigner<Object, ? extends Window> assigner,
            Trigger<Object, ? extends Window> trigger,
            long allowedLateness,
            String contents,
            long keep) {}

    WindowScript(Settings settings) throws Exception {
        this.settings = settings;
        harness = harness();
        harness.open();
        harness.setProcessingTime(processingTime);
    }

    List<Map<String, Object>> steps() {
        return steps;
    }

    long watermark() {
        return watermark;
    }

    /** Elements are numbered: their values are 1, 2, 3 … */
    void element(String key, long timestamp, Long gap) throws Exception {
        value++;
        harness.processElement(Tuple3.of(key, value, gap == null ? 0L : gap), timestamp);
        note(Cases.map("op", "element", "key", key, "value", value, "ts", timestamp, "gap", gap), false);
    }

    void watermark(long timestamp) throws Exception {
        watermark = timestamp;
        harness.processWatermark(timestamp);
        note(Cases.map("op", "watermark", "ts", timestamp), true);
    }

    void advance(long milliseconds) throws Exception {
        processingTime += milliseconds;
        harness.setProcessingTime(processingTime);
        note(Cases.map("op", "processing_time", "ts", processingTime), true);
    }

    /** A new operator goes on with the snapshot of the old one; it then gets clock and watermark again. */
    void restore() throws Exception {
        OperatorSubtaskState snapshot = harness.snapshot(1, 1);
        harness.close();
        harness = harness();
        harness.initializeState(snapshot);
        harness.open();
        harness.setProcessingTime(processingTime);
        if (watermark != Long.MIN_VALUE) {
            harness.processWatermark(watermark);
        }
        note(Cases.map("op", "restore"), true);
        Cases.requireSame(null, steps.get(steps.size() - 1).get("out"));
    }

    @Override
    public void close() throws Exception {
        harness.close();
    }

    private void note(Map<String, Object> step, boolean withLive) throws Exception {
        List<Object> out = new ArrayList<>();
        for (Object output : harness.getOutput()) {
            if (output instanceof StreamRecord<?> record) {
                out.add(record.getValue());
            }
        }
        harness.getOutput().clear();
        List<Object> late = new ArrayList<>();
        if (harness.getSideOutput(LATE) != null) {
            harness.getSideOutput(LATE).forEach(record -> late.add(record.getValue().f1));
            harness.getSideOutput(LATE).clear();
        }
        step.putAll(Cases.map("out", out, "late", late, "live", withLive ? live() : null));
        steps.add(step);
    }

    /** The windows that state is kept for, as [key, start, end], sorted. */
    private List<Object> live() throws Exception {
        KeyedStateBackend<String> backend = harness.getOperator().getKeyedStateBackend();
        TreeSet<Tuple2<String, TimeWindow>> live =
                new TreeSet<>(
                        Comparator.comparing((Tuple2<String, TimeWindow> each) -> each.f0)
                                .thenComparing(each -> each.f1.getStart())
                                .thenComparing(each -> each.f1.getEnd()));
        if (settings.assigner instanceof MergingWindowAssigner) {
            var pairs =
                    new ListStateDescriptor<>(
                            "merging-window-set",
                            new TupleTypeInfo<Tuple2<TimeWindow, TimeWindow>>(
                                    TypeInformation.of(TimeWindow.class), TypeInformation.of(TimeWindow.class)));
            for (String key : backend.getKeys("merging-window-set", VoidNamespace.INSTANCE).toList()) {
                backend.setCurrentKey(key);
                ListState<Tuple2<TimeWindow, TimeWindow>> state =
                        backend.getPartitionedState(
                                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, pairs);
                state.get().forEach(pair -> live.add(Tuple2.of(key, pair.f0)));
            }
        } else {
            backend.<Window>getKeysAndNamespaces("window-contents")
                    .filter(each -> each.f1 instanceof TimeWindow)
                    .forEach(each -> live.add(Tuple2.of(each.f0, (TimeWindow) each.f1)));
        }
        List<Object> rows = new ArrayList<>();
        live.forEach(each -> rows.add(List.of(each.f0, each.f1.getStart(), each.f1.getEnd())));
        return rows;
    }

    private KeyedOneInputStreamOperatorTestHarness<String, Tuple3<String, Long, Long>, List<Object>> harness()
            throws Exception {
        var harness =
                new KeyedOneInputStreamOperatorTestHarness<>(operator(settings), element -> element.f0, Types.STRING);
        harness.setup();
        return harness;
    }

    @SuppressWarnings("unchecked")
    private static <W extends Window>
            OneInputStreamOperator<Tuple3<String, Long, Long>, List<Object>> operator(Settings settings) {
        var builder =
                new WindowOperatorBuilder<Tuple3<String, Long, Long>, String, W>(
                        (WindowAssigner<Object, W>) settings.assigner,
                        (Trigger<Object, W>) settings.trigger,
                        new ExecutionConfig(),
                        ELEMENT,
                        element -> element.f0,
                        Types.STRING);
        builder.allowedLateness(Duration.ofMillis(settings.allowedLateness));
        builder.sideOutputLateData(LATE);
        if (settings.keep > 0) {
            builder.evictor(CountEvictor.of(settings.keep));
        }
        return settings.contents.equals("sum")
                ? builder.reduce((a, b) -> Tuple3.of(a.f0, a.f1 + b.f1, a.f2), new Emit<>(true))
                : builder.process(new Emit<>(false));
    }

    /** Emits [key, start, end, sum] or [key, start, end, [values]]; without start and end for the global window. */
    private static final class Emit<W extends Window>
            extends ProcessWindowFunction<Tuple3<String, Long, Long>, List<Object>, String, W> {
        private final boolean single;

        Emit(boolean single) {
            this.single = single;
        }

        @Override
        public void process(
                String key,
                Context context,
                Iterable<Tuple3<String, Long, Long>> elements,
                Collector<List<Object>> out) {
            List<Object> values = new ArrayList<>();
            elements.forEach(element -> values.add(element.f1));
            Object contents = single ? values.get(0) : values;
            out.collect(
                    context.window() instanceof TimeWindow window
                            ? List.of(key, window.getStart(), window.getEnd(), contents)
                            : List.of(key, contents));
        }
    }
}
