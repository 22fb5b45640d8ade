import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.ConsumerGroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client in full: an idempotent producer with headers and timestamps, a cooperative-sticky group that a second
 * member joins and the first one leaves, committed metadata, and admin calls. Prints "ok" last, or fails with the
 * reason. Arguments: bootstrap servers, topic (not there yet), codec.
 */
public class GroupRoundTrip {
    static final int PARTITIONS = 6;
    static final int RECORDS = 6000;
    // An hour ago: old enough to differ from append time, too young for retention.
    static final long FIRST_TIME = System.currentTimeMillis() - 3_600_000L;

    static String servers;
    static String topic;
    static String codec;
    static final Map<Integer, Integer> seen = new ConcurrentHashMap<>();

    static void check(boolean truth, Object what) {
        if (!truth) throw new AssertionError(String.valueOf(what));
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        topic = arguments[1];
        codec = arguments[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            create(admin);
            produce();
            group(admin);
            admin(admin);
        }
        System.out.println("ok");
    }

    static void create(Admin admin) throws Exception {
        CreateTopicsResult made = admin.createTopics(
            List.of(new NewTopic(topic, PARTITIONS - 2, (short) 1).configs(Map.of("compression.type", "producer"))));
        made.all().get(30, TimeUnit.SECONDS);
        check(made.numPartitions(topic).get() == PARTITIONS - 2, "partitions of the new topic");
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS))).all().get(30, TimeUnit.SECONDS);
        while (admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() < PARTITIONS)
            Thread.sleep(20);
    }

    static void produce() throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", servers, "enable.idempotence", true, "compression.type", codec, "linger.ms", 2);
        List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < RECORDS; n++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(
                    topic, n % PARTITIONS, FIRST_TIME + n, "key-" + n % 11, n % 100 == 99 ? null : "value-" + n);
                record.headers().add("number", Integer.toString(n).getBytes(StandardCharsets.UTF_8));
                record.headers().add(new RecordHeader("empty", new byte[0]));
                record.headers().add(new RecordHeader("null", (byte[]) null));
                sent.add(producer.send(record));
            }
        }
        Map<Integer, Long> next = new HashMap<>();
        for (int n = 0; n < RECORDS; n++) {
            RecordMetadata where = sent.get(n).get();
            check(where.offset() == next.merge(where.partition(), 1L, Long::sum) - 1, "offsets in order");
            check(where.timestamp() == FIRST_TIME + n, "create time is the producer's");
        }
    }

    static Consumer<String, String> consumer(String name) {
        return new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", servers, "group.id", topic + "-group", "client.id", name,
                "enable.auto.commit", false, "auto.offset.reset", "earliest", "max.poll.records", 50,
                "heartbeat.interval.ms", 300, "session.timeout.ms", 10_000,
                "partition.assignment.strategy", CooperativeStickyAssignor.class.getName()),
            new StringDeserializer(), new StringDeserializer());
    }

    static void take(ConsumerRecord<String, String> record) {
        int n = Integer.parseInt(
            new String(record.headers().lastHeader("number").value(), StandardCharsets.UTF_8));
        check(record.partition() == n % PARTITIONS && record.offset() == n / PARTITIONS, "place of " + n);
        check(record.timestamp() == FIRST_TIME + n, "time of " + n);
        check(record.key().equals("key-" + n % 11), "key of " + n);
        check(n % 100 == 99 ? record.value() == null : record.value().equals("value-" + n), "value of " + n);
        check(record.headers().lastHeader("empty").value().length == 0, "empty header of " + n);
        check(record.headers().lastHeader("null").value() == null, "null header of " + n);
        seen.merge(n, 1, Integer::sum);
    }

    /** Poll until stopped; commits each batch with metadata; counts partitions that were revoked. */
    static void member(Consumer<String, String> consumer, AtomicBoolean stop, Set<TopicPartition> mine,
                       AtomicInteger revoked, List<Throwable> failures) {
        Map<TopicPartition, OffsetAndMetadata> pending = new HashMap<>();
        try (consumer) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> gone) {
                    if (!pending.isEmpty()) consumer.commitSync(pending);
                    pending.clear();
                    revoked.addAndGet(gone.size());
                    mine.removeAll(gone);
                }

                public void onPartitionsAssigned(Collection<TopicPartition> more) {
                    mine.addAll(more);
                }
            });
            while (!stop.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(50));
                for (ConsumerRecord<String, String> record : records) {
                    take(record);
                    pending.put(new TopicPartition(topic, record.partition()),
                        new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), "by " + record.offset()));
                }
                try {
                    if (!pending.isEmpty()) consumer.commitSync(pending);
                    pending.clear();
                } catch (RebalanceInProgressException later) {
                    // Cooperative members go on reading while the group rebalances; the next turn commits these.
                }
                Thread.sleep(2);
            }
        } catch (Throwable failure) {
            failures.add(failure);
        }
    }

    static void group(Admin admin) throws Exception {
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        List<Set<TopicPartition>> mine = List.of(ConcurrentHashMap.newKeySet(), ConcurrentHashMap.newKeySet());
        List<AtomicBoolean> stop = List.of(new AtomicBoolean(), new AtomicBoolean());
        List<AtomicInteger> revoked = List.of(new AtomicInteger(), new AtomicInteger());
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < 2; index++) {
            int who = index;
            Thread thread = new Thread(() ->
                member(consumer("member-" + who), stop.get(who), mine.get(who), revoked.get(who), failures));
            thread.setDaemon(true);
            threads.add(thread);
        }
        threads.get(0).start();
        until(failures, () -> mine.get(0).size() == PARTITIONS && !seen.isEmpty(), "the first member has all");
        threads.get(1).start();
        until(failures, () -> mine.get(0).size() == 3 && mine.get(1).size() == 3, "both members have three");
        check(revoked.get(0).get() == 3, "cooperative: only what moves is revoked, not " + revoked.get(0));
        ConsumerGroupDescription described =
            admin.describeConsumerGroups(List.of(topic + "-group")).all().get().get(topic + "-group");
        check(described.state() == ConsumerGroupState.STABLE, described);
        check(described.partitionAssignor().equals("cooperative-sticky"), described);
        check(described.members().size() == 2, described);
        Set<TopicPartition> assigned = new HashSet<>();
        for (MemberDescription one : described.members()) assigned.addAll(one.assignment().topicPartitions());
        check(assigned.size() == PARTITIONS, described);
        stop.get(0).set(true);
        until(failures, () -> mine.get(1).size() == PARTITIONS, "the second member has all");
        until(failures, () -> seen.size() == RECORDS, "every record was seen");
        // What was committed last must be there before the group is asked.
        stop.get(1).set(true);
        for (Thread thread : threads) thread.join(30_000);
        check(failures.isEmpty(), failures);
        for (Map.Entry<Integer, Integer> one : seen.entrySet())
            check(one.getValue() == 1, "record " + one.getKey() + " came " + one.getValue() + " times");
        Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listConsumerGroupOffsets(topic + "-group").partitionsToOffsetAndMetadata().get();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            OffsetAndMetadata offset = committed.get(new TopicPartition(topic, partition));
            check(offset.offset() == RECORDS / PARTITIONS, committed);
            check(offset.metadata().equals("by " + (RECORDS / PARTITIONS - 1)), committed);
            check(offset.leaderEpoch().isPresent(), committed);
        }
    }

    interface Truth {
        boolean holds();
    }

    static void until(List<Throwable> failures, Truth truth, String what) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!truth.holds()) {
            if (!failures.isEmpty()) throw new AssertionError(what, failures.get(0));
            check(System.nanoTime() < end, "not within 60 s: " + what + ", seen " + seen.size());
            Thread.sleep(10);
        }
    }

    static void admin(Admin admin) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        int each = RECORDS / PARTITIONS;
        check(admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset() == each, "latest");
        ListOffsetsResult.ListOffsetsResultInfo at =
            admin.listOffsets(Map.of(first, OffsetSpec.forTimestamp(FIRST_TIME + 6 * 500 - 1))).all().get().get(first);
        check(at.offset() == 500 && at.timestamp() == FIRST_TIME + 6 * 500, at);
        long most = admin.listOffsets(Map.of(first, OffsetSpec.maxTimestamp())).all().get().get(first).offset();
        check(most == each - 1, "max timestamp at " + most);
        long low = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(100)))
            .lowWatermarks().get(first).get().lowWatermark();
        check(low == 100, "low watermark " + low);
        check(admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset() == 100, "earliest");

        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "123456789"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)
        ))).all().get();
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        check(config.get("retention.ms").value().equals("123456789"), config.get("retention.ms"));
        check(config.get("cleanup.policy").value().equals("delete,compact"), config.get("cleanup.policy"));
        check(config.get("retention.ms").source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config);
        check(config.get("segment.bytes").isDefault(), config.get("segment.bytes"));
        try {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all().get();
            throw new AssertionError("nonsense was accepted as retention.ms");
        } catch (java.util.concurrent.ExecutionException refused) {
            check(refused.getCause() instanceof org.apache.kafka.common.errors.InvalidConfigurationException, refused);
        }

        check(admin.describeCluster().nodes().get().size() == 1, "one node");
        check(!admin.describeCluster().clusterId().get().isEmpty(), "a cluster id");
        int node = admin.describeCluster().controller().get().id();
        Map<String, LogDirDescription> folders = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        check(folders.values().iterator().next().replicaInfos().containsKey(first), folders);
        check(admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().size() == 1, "producers");

        try {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            throw new AssertionError("a topic was made twice");
        } catch (java.util.concurrent.ExecutionException refused) {
            check(refused.getCause() instanceof org.apache.kafka.common.errors.TopicExistsException, refused);
        }
        admin.deleteConsumerGroupOffsets(topic + "-group", Set.of(first)).all().get();
        check(!admin.listConsumerGroupOffsets(topic + "-group").partitionsToOffsetAndMetadata().get()
            .containsKey(first), "deleted offset");
        admin.deleteConsumerGroups(List.of(topic + "-group")).all().get();
        admin.deleteTopics(List.of(topic)).all().get();
        while (admin.listTopics().names().get().contains(topic)) Thread.sleep(20);
    }
}
