import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Which settings Kafka accepts. Each line of standard input has the scope, broker or topic, and settings, key by key
 * and value by value, separated by U+001F. The answer is a line: "ok", or why Kafka's broker wouldn't start with them,
 * or its controller wouldn't make a topic with them.
 */
public class Settings {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Properties fixed = new Properties();
        fixed.put("zookeeper.connect", "127.0.0.1:2181");
        fixed.put("listeners", "PLAINTEXT://127.0.0.1:9092");
        Map<String, Object> defaults = new KafkaConfig(fixed, false).extractLogConfigMap();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\u001f", -1);
            Properties given = new Properties();
            for (int i = 1; i < parts.length; i += 2)
                given.put(parts[i], parts[i + 1]);
            String answer = "ok";
            try {
                if (parts[0].equals("topic")) {
                    LogConfig.validate(Collections.emptyMap(), given, defaults, false, true);
                } else {
                    Properties all = new Properties();
                    all.putAll(fixed);
                    all.putAll(given);
                    new KafkaConfig(all, false);
                }
            } catch (RuntimeException error) {
                answer = error.getClass().getSimpleName() + ": " + String.valueOf(error.getMessage()).replace('\n', ' ');
            }
            out.println(answer);
        }
        out.flush();
    }
}
