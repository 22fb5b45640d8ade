import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;

/**
 * Members of a share group, each with a thread of its own, that work for some milliseconds on each record. Arguments:
 * address, group, topic, number of members, milliseconds a record, most records of a poll.
 *
 * They acknowledge by polling again. Each record is printed as "nanoseconds member key value", after the poll's others
 * and before they are acknowledged. They end when something comes on the standard input.
 */
public class KeyedShareMembers {
    public static void main(String[] arguments) throws Exception {
        AtomicBoolean ends = new AtomicBoolean();
        List<Thread> members = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            String name = ProcessHandle.current().pid() + "-" + number;
            Thread member = new Thread(() -> run(arguments, name, ends));
            members.add(member);
            member.start();
        }
        System.in.read();
        ends.set(true);
        for (Thread member : members) member.join();
    }

    private static void run(String[] arguments, String name, AtomicBoolean ends) {
        long work = Long.parseLong(arguments[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("max.poll.records", arguments[5]);
        settings.put("share.acquire.mode", "record_limit");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) System.out.println("error " + error);
            });
            consumer.subscribe(List.of(arguments[2]));
            while (!ends.get()) {
                StringBuilder lines = new StringBuilder();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    lines.append(System.nanoTime()).append(' ').append(name).append(' ').append(record.key());
                    lines.append(' ').append(record.value()).append('\n');
                    Thread.sleep(work);
                }
                if (!lines.isEmpty()) System.out.print(lines);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
