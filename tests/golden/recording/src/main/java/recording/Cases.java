package recording;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** The cases of one file: a JSON object per line. */
final class Cases {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String prefix;
    private final List<String> lines = new ArrayList<>();

    Cases(String prefix) {
        this.prefix = prefix;
    }

    void add(String tag, Map<String, Object> parameters, List<Map<String, Object>> steps)
            throws JsonProcessingException {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", String.format("%s-%04d", prefix, lines.size() + 1));
        line.put("tag", tag);
        line.putAll(parameters);
        line.put("steps", steps);
        lines.add(JSON.writeValueAsString(line));
    }

    void write(Path file) throws IOException {
        Files.writeString(file, String.join("\n", lines) + "\n");
        System.out.println(file.getFileName() + ": " + lines.size() + " cases");
    }

    /** Guards the promise that a restore changes nothing: the watermark sent again must find no timer due. */
    static void requireSame(Object before, Object after) {
        if (!Objects.equals(before, after)) {
            throw new IllegalStateException("found " + after + " after a restore; expected " + before);
        }
    }

    /** An ordered map of alternating names and values; entries with an empty list or null are left out. */
    static Map<String, Object> map(Object... entries) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < entries.length; i += 2) {
            Object value = entries[i + 1];
            if (value != null && !(value instanceof List<?> list && list.isEmpty())) {
                map.put((String) entries[i], value);
            }
        }
        return map;
    }
}
