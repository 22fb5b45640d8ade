import java.io.*;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * A transactional producer that does what standard input says, a line a step, and answers each with "ok" or "error NAME":
 * "init", "begin", "send VALUE" (without waiting), "flush", "offsets GROUP OFFSET", "commit", "abort". Arguments:
 * bootstrap servers, transactional id, topic.
 */
public class TransactionalProducer {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        settings.put("linger.ms", "0");
        settings.put("retry.backoff.ms", "10");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("request.timeout.ms", "6000");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        String topic = arguments[2];
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = steps.readLine()) != null; ) {
            String[] step = line.split(" ");
            String answer = "ok";
            try {
                switch (step[0]) {
                    case "init" -> producer.initTransactions();
                    case "begin" -> producer.beginTransaction();
                    case "send" -> producer.send(new ProducerRecord<>(topic, 0, null, step[1]));
                    case "flush" -> producer.flush();
                    case "offsets" -> producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(Long.parseLong(step[2]))),
                        new ConsumerGroupMetadata(step[1]));
                    case "commit" -> producer.commitTransaction();
                    case "abort" -> producer.abortTransaction();
                    default -> answer = "error unknown step";
                }
            } catch (Exception failure) {
                answer = "error " + failure.getClass().getSimpleName();
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
