package recording;

import java.nio.file.Path;

/** Writes all recorded files into the folder given as the only argument. */
public final class Main {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        SessionWindows.record(folder.resolve("session_windows.jsonl"));
        IntervalJoins.record(folder.resolve("interval_join.jsonl"));
        CoProcesses.record(folder.resolve("co_process.jsonl"));
        Triggers.recordCounts(folder.resolve("count_windows.jsonl"));
        Triggers.record(folder.resolve("triggers.jsonl"));
        Watermarks.record(folder.resolve("watermarks.jsonl"));
    }

    private Main() {}
}
