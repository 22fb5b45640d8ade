import java.io.FileReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Logs in by the options of each file, writes records and reads them. Arguments: the beginning of the topics' names,
 * then a broker's address and a file, again and again. Prints "ok" last.
 */
public class Logins {
    private static final int RECORDS = 10;
    private static final String PACKAGE = "org.apache.kafka.common.serialization.String";

    public static void main(String[] arguments) throws Exception {
        for (int n = 1; n < arguments.length; n += 2) {
            try {
                roundTrip(arguments[0] + "-" + n, arguments[n], arguments[n + 1]);
            } catch (Exception failure) {
                throw new IllegalStateException(arguments[n + 1], failure);
            }
        }
        System.out.println("ok");
    }

    private static void roundTrip(String topic, String address, String file) throws Exception {
        Properties given = new Properties();
        try (FileReader reader = new FileReader(file)) {
            given.load(reader);
        }
        String tokens = given.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (tokens != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", tokens);
        }
        given.put("bootstrap.servers", address);
        given.put("key.serializer", PACKAGE + "Serializer");
        given.put("value.serializer", PACKAGE + "Serializer");
        given.put("key.deserializer", PACKAGE + "Deserializer");
        given.put("value.deserializer", PACKAGE + "Deserializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(given)) {
            for (int n = 0; n < RECORDS; n++) {
                producer.send(new ProducerRecord<>(topic, "value-" + n)).get();
            }
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(given)) {
            List<TopicPartition> all = List.of(new TopicPartition(topic, 0));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long end = System.currentTimeMillis() + 60_000;
            int read = 0;
            while (read < RECORDS) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("read " + read + " records within 60 s");
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (!record.value().equals("value-" + read++)) {
                        throw new IllegalStateException("read " + record.value());
                    }
                }
            }
        }
    }
}
