import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group that tells on standard output, a line a change, which partitions of its topic it has: "0,1,2". It
 * leaves when its standard input ends. Arguments: bootstrap servers, group, topic, classes of assignors with commas.
 */
public class GroupMember {
    static final Set<TopicPartition> held = new TreeSet<>(Comparator.comparingInt(TopicPartition::partition));

    static void tell() {
        System.out.println(held.stream().map(one -> "" + one.partition()).collect(Collectors.joining(",")));
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("partition.assignment.strategy", arguments[3]);
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "200");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        Thread ear = new Thread(() -> {
            try {
                while (System.in.read() >= 0);
            } catch (IOException gone) {
                // as good as an end
            }
            consumer.wakeup();
        });
        ear.setDaemon(true);
        ear.start();
        consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                held.removeAll(partitions);
                tell();
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                held.addAll(partitions);
                tell();
            }
        });
        try {
            while (true) consumer.poll(Duration.ofMillis(100));
        } catch (org.apache.kafka.common.errors.WakeupException leave) {
            consumer.close();
        }
    }
}
