import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;

/**
 * A member of a share group. Arguments: address, group, topic, how it acknowledges.
 *
 * "implicit" accepts what the last poll returned; "explicit" does what each record's value says: its first letter is a
 * for accept, r for release on the first delivery, n for renew the lock once, x for reject, k for kill this process at
 * once. Each record is printed as "partition offset deliveries value". It ends when something comes on its standard input.
 */
public class ShareMember {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", arguments[3]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        Set<Long> renewed = new HashSet<>();
        boolean explicit = arguments[3].equals("explicit");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) System.out.println("error " + error);
            });
            consumer.subscribe(List.of(arguments[2]));

            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    short deliveries = record.deliveryCount().orElse((short) -1);
                    System.out.println(
                        record.partition() + " " + record.offset() + " " + deliveries + " " + record.value());
                    if (!explicit) continue;
                    char wanted = record.value().charAt(0);
                    if (wanted == 'k' && deliveries == 1) Runtime.getRuntime().halt(9);
                    if (wanted == 'r' && deliveries == 1) consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    else if (wanted == 'n' && renewed.add(record.offset())) consumer.acknowledge(record, AcknowledgeType.RENEW);
                    else if (wanted == 'x') consumer.acknowledge(record, AcknowledgeType.REJECT);
                    else consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
            }
        }
    }
}
