package recording;

import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousEventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousProcessingTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Triggers other than the default, and count windows, which are a trigger on the global window. */
final class Triggers {
    private static final String[] KEYS = {"a", "b"};

    private final Cases cases;

    private Triggers(String prefix) {
        cases = new Cases(prefix);
    }

    /** Count windows as {@code KeyedStream.countWindow(size)} and {@code countWindow(size, slide)} make them. */
    static void recordCounts(Path file) throws Exception {
        Triggers recorder = new Triggers("count");
        for (int seed = 1; seed <= 80; seed++) {
            Random random = new Random(seed);
            long size = 1 + random.nextInt(5);
            boolean tumbling = random.nextBoolean();
            long slide = tumbling ? size : 1 + random.nextInt(5);
            String contents = random.nextBoolean() ? "sum" : "list";
            Trigger<Object, ? extends Window> count = CountTrigger.of(slide);
            var settings =
                    new WindowScript.Settings(
                            GlobalWindows.create(),
                            tumbling ? PurgingTrigger.of(count) : count,
                            0,
                            contents,
                            tumbling ? 0 : size);
            Map<String, Object> parameters =
                    Cases.map("size", size, "slide", tumbling ? null : slide, "contents", contents);
            recorder.add(tumbling ? "tumbling" : "sliding", parameters, settings, run -> {
                int length = 5 + random.nextInt(20);
                for (int i = 0; i < length; i++) {
                    int kind = random.nextInt(12);
                    if (kind == 0) {
                        run.restore();
                    } else if (kind == 1) {
                        run.watermark(Math.max(run.watermark(), i));
                    } else {
                        run.element(KEYS[random.nextInt(3) / 2], random.nextInt(30), null);
                    }
                }
            });
        }
        recorder.cases.write(file);
    }

    static void record(Path file) throws Exception {
        Triggers recorder = new Triggers("trigger");
        recorder.chosen();
        for (int seed = 1; seed <= 150; seed++) {
            recorder.random(seed);
        }
        recorder.cases.write(file);
    }

    private interface Script {
        void run(WindowScript script) throws Exception;
    }

    private record Windows(WindowAssigner<Object, TimeWindow> assigner, Map<String, Object> description) {
        static Windows tumbling(long size) {
            return new Windows(
                    TumblingEventTimeWindows.of(Duration.ofMillis(size)),
                    Cases.map("type", "tumbling", "size_ms", size));
        }

        static Windows sliding(long size, long slide) {
            return new Windows(
                    SlidingEventTimeWindows.of(Duration.ofMillis(size), Duration.ofMillis(slide)),
                    Cases.map("type", "sliding", "size_ms", size, "slide_ms", slide));
        }

        static Windows session(long gap) {
            return new Windows(SessionWindows.assigner(gap), Cases.map("type", "session", "gap_ms", gap));
        }
    }

    private record Firing(Trigger<Object, TimeWindow> trigger, Map<String, Object> description) {
        static Firing eventTime() {
            Trigger<Object, TimeWindow> trigger = EventTimeTrigger.create();
            return new Firing(trigger, Cases.map("type", "event_time", "purging", false));
        }

        static Firing continuousEventTime(long interval) {
            Trigger<Object, TimeWindow> trigger = ContinuousEventTimeTrigger.of(Duration.ofMillis(interval));
            return new Firing(
                    trigger, Cases.map("type", "continuous_event_time", "interval_ms", interval, "purging", false));
        }

        static Firing continuousProcessingTime(long interval) {
            Trigger<Object, TimeWindow> trigger = ContinuousProcessingTimeTrigger.of(Duration.ofMillis(interval));
            return new Firing(
                    trigger,
                    Cases.map("type", "continuous_processing_time", "interval_ms", interval, "purging", false));
        }

        static Firing count(long count) {
            Trigger<Object, TimeWindow> trigger = CountTrigger.of(count);
            return new Firing(trigger, Cases.map("type", "count", "count", count, "purging", false));
        }

        Firing purging() {
            var purging = new LinkedHashMap<>(description);
            purging.put("purging", true);
            return new Firing(PurgingTrigger.of(trigger), purging);
        }
    }

    private void add(
            String tag, Map<String, Object> parameters, WindowScript.Settings settings, Script script)
            throws Exception {
        try (WindowScript run = new WindowScript(settings)) {
            script.run(run);
            cases.add(tag, parameters, run.steps());
        }
    }

    private void add(String tag, Windows windows, Firing firing, long lateness, String contents, Script script)
            throws Exception {
        Map<String, Object> parameters =
                Cases.map(
                        "windows", windows.description,
                        "trigger", firing.description,
                        "allowed_lateness_ms", lateness,
                        "contents", contents);
        var settings = new WindowScript.Settings(windows.assigner, firing.trigger, lateness, contents, 0);
        add(tag, parameters, settings, script);
    }

    private void chosen() throws Exception {
        for (String contents : List.of("sum", "list")) {
            add("early_and_on_time", Windows.tumbling(20), Firing.continuousEventTime(5), 0, contents, run -> {
                run.element("a", 1, null);
                run.watermark(4);
                run.watermark(5);
                run.watermark(10);
                run.element("a", 12, null);
                run.watermark(18);
                run.watermark(19);
                run.watermark(30);
            });
            add("several_intervals_in_one_advance", Windows.tumbling(20), Firing.continuousEventTime(5), 0, contents,
                    run -> {
                        run.element("a", 1, null);
                        run.element("a", 16, null);
                        run.watermark(17);
                        run.watermark(100);
                    });
            add("interval_does_not_divide_the_size", Windows.tumbling(10), Firing.continuousEventTime(4), 0, contents,
                    run -> {
                        run.element("a", 1, null);
                        run.element("a", 11, null);
                        for (long timestamp = 3; timestamp <= 21; timestamp++) {
                            run.watermark(timestamp);
                        }
                    });
            add("interval_longer_than_the_window", Windows.tumbling(10), Firing.continuousEventTime(100), 0, contents,
                    run -> {
                        run.element("a", 1, null);
                        run.watermark(9);
                        run.watermark(100);
                    });
            add("late_within_lateness", Windows.tumbling(10), Firing.continuousEventTime(4), 10, contents, run -> {
                run.element("a", 1, null);
                run.watermark(9);
                run.element("a", 2, null);
                run.watermark(15);
                run.element("a", 3, null);
                run.watermark(19);
                run.element("a", 4, null);
            });
            add("merge_keeps_the_earlier_firing", Windows.session(10), Firing.continuousEventTime(6), 0, contents,
                    run -> {
                        run.element("a", 1, null);
                        run.element("a", 21, null);
                        run.element("a", 11, null);
                        for (long timestamp = 5; timestamp <= 31; timestamp++) {
                            run.watermark(timestamp);
                        }
                    });
            add("session_grows_between_early_firings", Windows.session(10), Firing.continuousEventTime(6), 5, contents,
                    run -> {
                        run.element("a", 1, null);
                        run.watermark(6);
                        run.element("a", 8, null);
                        run.watermark(12);
                        run.element("a", 15, null);
                        run.restore();
                        run.watermark(18);
                        run.watermark(24);
                        run.element("a", 22, null);
                        run.watermark(60);
                    });
            add("count_does_not_fire_at_the_end", Windows.tumbling(10), Firing.count(2), 0, contents, run -> {
                run.element("a", 1, null);
                run.element("a", 2, null);
                run.element("a", 3, null);
                run.watermark(9);
                run.watermark(10);
            });
            add("count_of_a_merged_session", Windows.session(5), Firing.count(3), 0, contents, run -> {
                run.element("a", 0, null);
                run.element("a", 10, null);
                run.element("a", 5, null);
                run.element("a", 6, null);
                run.watermark(50);
            });
            add("purging_on_time", Windows.tumbling(10), Firing.eventTime().purging(), 10, contents, run -> {
                run.element("a", 1, null);
                run.watermark(9);
                run.element("a", 2, null);
                run.element("a", 3, null);
                run.watermark(50);
            });
            add("purging_early", Windows.tumbling(20), Firing.continuousEventTime(5).purging(), 0, contents, run -> {
                run.element("a", 1, null);
                run.watermark(5);
                run.watermark(10);
                run.element("a", 12, null);
                run.watermark(15);
                run.watermark(19);
            });
            add("early_by_the_clock", Windows.tumbling(20), Firing.continuousProcessingTime(5), 0, contents, run -> {
                run.element("a", 1, null);
                run.advance(4);
                run.advance(1);
                run.element("a", 2, null);
                run.advance(12);
                run.watermark(19);
                run.advance(20);
            });
        }
    }

    private void random(int seed) throws Exception {
        Random random = new Random(seed);
        long size = 6 + random.nextInt(15);
        Windows windows =
                switch (random.nextInt(5)) {
                    case 0, 1 -> Windows.tumbling(size);
                    case 2 -> Windows.sliding(size, 2 + random.nextInt((int) size));
                    default -> Windows.session(2 + random.nextInt(7));
                };
        Firing firing =
                switch (random.nextInt(8)) {
                    case 0 -> Firing.eventTime();
                    case 1 -> Firing.count(1 + random.nextInt(4));
                    case 2 -> Firing.continuousProcessingTime(2 + random.nextInt(7));
                    default -> Firing.continuousEventTime(2 + random.nextInt(7));
                };
        long lateness = random.nextInt(2) * random.nextInt(15);
        add("random", windows, random.nextInt(4) == 0 ? firing.purging() : firing, lateness,
                random.nextBoolean() ? "sum" : "list", run -> {
                    // Its firings are planned at most at the window's end. The clock stays below 200.
                    long now = firing.description.get("type").equals("continuous_processing_time") ? 300 : 0;
                    int length = 10 + random.nextInt(15);
                    for (int i = 0; i < length; i++) {
                        int kind = random.nextInt(20);
                        if (kind == 0) {
                            run.watermark(run.watermark() + 1);
                            run.restore();
                        } else if (kind < 3) {
                            run.advance(random.nextInt(6));
                        } else if (kind < 9) {
                            run.watermark(Math.max(run.watermark(), now - 8 + random.nextInt(12)));
                        } else {
                            now += random.nextInt(6);
                            run.element(KEYS[random.nextInt(4) / 3], now - random.nextInt(12), null);
                        }
                    }
                    run.watermark(now + 100);
                });
    }
}
