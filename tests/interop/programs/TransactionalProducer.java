import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Transactional producers that do what standard input says, a line a step, and answer each with "ok" or "error NAME":
 * "PRODUCER new BOOTSTRAP TRANSACTIONAL-ID TOPIC KEY=VALUE…", then "PRODUCER STEP" with the steps "init", "begin",
 * "send PARTITION VALUE" (without waiting), "flush", "offsets GROUP OFFSET", "commit", "abort" and "close".
 */
public class TransactionalProducer {
    private final KafkaProducer<String, String> producer;
    private final String topic;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    private TransactionalProducer(String[] line) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", line[2]);
        settings.put("transactional.id", line[3]);
        settings.put("linger.ms", "0");
        settings.put("retry.backoff.ms", "10");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("request.timeout.ms", "6000");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        for (int i = 5; i < line.length; i++) {
            String[] pair = line[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        topic = line[4];
        producer = new KafkaProducer<>(settings);
    }

    private void step(String[] line) throws Exception {
        switch (line[1]) {
            case "init" -> producer.initTransactions();
            case "begin" -> {
                sent.clear();
                producer.beginTransaction();
            }
            case "send" ->
                sent.add(producer.send(new ProducerRecord<>(topic, Integer.parseInt(line[2]), null, line[3])));
            case "flush" -> {
                producer.flush();
                for (Future<RecordMetadata> each : sent) each.get();
            }
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(Long.parseLong(line[3]))),
                new ConsumerGroupMetadata(line[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close(Duration.ZERO);
            default -> throw new IllegalArgumentException(line[1]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, TransactionalProducer> producers = new HashMap<>();
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        for (String text; (text = steps.readLine()) != null; ) {
            String[] line = text.split(" ");
            String answer = "ok";
            try {
                if (line[1].equals("new")) producers.put(line[0], new TransactionalProducer(line));
                else producers.get(line[0]).step(line);
            } catch (ExecutionException failure) {
                answer = "error " + failure.getCause().getClass().getSimpleName();
            } catch (Exception failure) {
                answer = "error " + failure.getClass().getSimpleName();
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
