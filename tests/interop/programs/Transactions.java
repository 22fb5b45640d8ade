import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * tests/faults/transact.py with Java's producers: random transactions, one producer for each id, until standard input
 * ends. Arguments: bootstrap servers, topic, its partitions, a seed, how many ids, the first letters of their names.
 */
public class Transactions implements Runnable {
    private static volatile boolean stopping;
    private static String bootstrap, topic;
    private static int partitions;

    private final String name;
    private final Random chance;
    private final KafkaConsumer<String, String> group;
    private KafkaProducer<String, String> producer;
    private int instances, transactions;
    private long committed = -1;

    Transactions(String name, long seed) {
        this.name = name;
        chance = new Random(seed);
        Properties settings = eager();
        settings.put("group.id", name);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        group = new KafkaConsumer<>(settings);
    }

    private static Properties eager() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("request.timeout.ms", "5000");
        settings.put("metadata.max.age.ms", "2000");
        return settings;
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) line.append(line.length() == 0 ? "" : " ").append(word);
        System.out.println(line);
    }

    public void run() {
        while (!stopping || producer == null) {
            if (producer == null) replace();
            else if (!transact()) {
                producer.close(Duration.ZERO);
                producer = null;
            }
        }
        producer.close(Duration.ZERO);
    }

    private void replace() {
        instances++;
        Properties settings = eager();
        settings.put("transactional.id", name);
        settings.put("client.id", "tx-" + name);
        settings.put("transaction.timeout.ms", "60000");
        settings.put("delivery.timeout.ms", "60000");
        settings.put("max.block.ms", "60000");
        settings.put("linger.ms", "0");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        KafkaProducer<String, String> made = new KafkaProducer<>(settings);
        try {
            made.initTransactions();
            producer = made;
        } catch (KafkaException failure) {
            made.close(Duration.ZERO);
            say("error", name, "init", failure.getClass().getSimpleName());
        }
    }

    /** Again for a timeout, as its documentation asks. */
    private static void again(Runnable step) {
        long deadline = System.nanoTime() + 90_000_000_000L;
        while (true) {
            try {
                step.run();
                return;
            } catch (org.apache.kafka.common.errors.TimeoutException failure) {
                if (System.nanoTime() > deadline) throw failure;
            }
        }
    }

    private static boolean mayAbort(KafkaException failure) {
        return !(failure instanceof ProducerFencedException || failure instanceof OutOfOrderSequenceException
            || failure instanceof AuthorizationException || failure instanceof InvalidProducerEpochException
            || failure instanceof FencedInstanceIdException
            || failure instanceof org.apache.kafka.common.errors.TimeoutException);
    }

    private static String nameOf(Throwable failure) {
        Throwable cause = failure.getCause();
        String name = failure.getClass().getSimpleName();
        return cause == null ? name : name + "/" + cause.getClass().getSimpleName();
    }

    private boolean transact() {
        boolean commit = chance.nextDouble() >= 0.15, withOffset = chance.nextDouble() < 0.5;
        int size = 1 + chance.nextInt(4), number = ++transactions;
        String transaction = name + "." + instances + "." + number;
        String outcome = "abort";
        boolean ending = false, goesOn = true;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        long began = System.nanoTime();
        try {
            producer.beginTransaction();
            for (int index = 0; index < size; index++) {
                String value = transaction + "/" + size + "/" + index + "/" + (commit ? "commit" : "abort") + "/0/" + number;
                sent.add(producer.send(new ProducerRecord<>(topic, chance.nextInt(partitions), null, value)));
                if (chance.nextDouble() < 0.3) producer.flush();
            }
            if (withOffset)
                again(() -> producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number)), new ConsumerGroupMetadata(name)));
            if (commit) {
                ending = true;
                again(producer::commitTransaction);
                // Its sender looks whether all records are acknowledged before it takes the EndTxn from the queue, not
                // while it does: a record and a commit in between are ended without the record, which stays behind.
                int acknowledged = (int) sent.stream().filter(Future::isDone).count();
                if (acknowledged < size) {
                    say("error", name, transaction, "UNSENT");
                    size = acknowledged;
                    goesOn = false;
                }
                outcome = size == 0 ? "unknown" : "commit";
            } else {
                again(producer::abortTransaction);
            }
        } catch (KafkaException failure) {
            say("error", name, transaction, System.nanoTime() - began < 60_000_000_000L ? nameOf(failure) : "EXPIRED");
            goesOn = mayAbort(failure) && abort(transaction);
            if (ending && !goesOn) outcome = "unknown";
        } catch (IllegalStateException failure) {
            say("error", name, transaction, nameOf(failure));
            goesOn = false;
            if (ending) outcome = "unknown";
        }
        say("txn", name, transaction, size, withOffset ? number : -1, outcome);
        if (outcome.equals("commit") && withOffset) {
            committed = number;
            if (chance.nextDouble() < 0.15) look();
        }
        return goesOn;
    }

    private boolean abort(String transaction) {
        try {
            again(producer::abortTransaction);
            return true;
        } catch (KafkaException | IllegalStateException failure) {
            say("error", name, transaction, nameOf(failure));
            return false;
        }
    }

    private void look() {
        TopicPartition place = new TopicPartition(topic, 0);
        long fetched = -2, deadline = System.nanoTime() + 15_000_000_000L;
        while (System.nanoTime() < deadline) {
            try {
                OffsetAndMetadata found = group.committed(Set.of(place), Duration.ofSeconds(10)).get(place);
                fetched = found == null ? -1 : found.offset();
                if (fetched >= committed) return;
                Thread.sleep(200);
            } catch (KafkaException failure) {
                continue;
            } catch (InterruptedException failure) {
                return;
            }
        }
        if (fetched > -2) say("back", name, committed, fetched);
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        Random chance = new Random(Long.parseLong(arguments[3]));
        List<Thread> workers = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[4]); number++) {
            Thread worker = new Thread(new Transactions(arguments[5] + number, chance.nextLong()));
            worker.start();
            workers.add(worker);
        }
        while (System.in.read() >= 0) continue;
        stopping = true;
        for (Thread worker : workers) worker.join();
        Runtime.getRuntime().halt(0);
    }
}
