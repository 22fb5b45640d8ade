import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams with exactly_once_v2: counts the records of each key, and writes each new count. It ends when standard
 * input does, or is killed. Arguments: bootstrap servers, application id, source, target, folder.
 */
public class StreamsCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "50");
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());
        settings.put("main.consumer.session.timeout.ms", "2000");
        settings.put("main.consumer.heartbeat.interval.ms", "500");
        settings.put("main.consumer.max.poll.records", "10");
        settings.put("producer.transaction.timeout.ms", "10000");
        StreamsBuilder topology = new StreamsBuilder();
        topology.<String, String>stream(arguments[2])
            .groupByKey()
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled())
            .toStream()
            .mapValues(count -> count.toString())
            .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(topology.build(), settings);
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close();
        Runtime.getRuntime().halt(0);
    }
}
