// Writes java.json: record batches as Apache Kafka's own classes write them, and as its cleaner rewrites them.
//
//   java -cp 'kafka-clients-3.9.1.jar:lz4-java-1.8.0.jar:snappy-java-1.1.10.5.jar:zstd-jni-1.5.6-4.jar:slf4j-api-1.7.36.jar' \
//       Golden.java > java.json

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;

public class Golden {
    static final long T = 1_700_000_000_000L;
    static final List<String> cases = new ArrayList<>();

    static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String quoted(byte[] bytes) {
        return bytes == null ? "null" : '"' + HexFormat.of().formatHex(bytes) + '"';
    }

    // A long value stands in the file as its digest.
    static String value(byte[] bytes) {
        if (bytes == null || bytes.length < 2000) return quoted(bytes);
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
            return "\"sha256:" + HexFormat.of().formatHex(digest) + '"';
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    static String recordsOf(MemoryRecords records) {
        List<String> out = new ArrayList<>();
        for (Record r : records.records()) {
            List<String> headers = new ArrayList<>();
            for (Header h : r.headers())
                headers.add("[" + quoted(utf8(h.key())) + ", " + quoted(h.value()) + "]");
            out.add("[" + r.offset() + ", " + r.timestamp() + ", " + quoted(bytes(r.key())) + ", "
                + value(bytes(r.value())) + ", [" + String.join(", ", headers) + "]]");
        }
        return "[" + String.join(",\n    ", out) + "]";
    }

    static MemoryRecords add(String name, String extra, MemoryRecords records) {
        cases.add(" {\"name\": \"" + name + "\"," + extra + "\n  \"bytes\": " + quoted(bytes(records.buffer()))
            + ",\n  \"records\": " + recordsOf(records) + "}");
        return records;
    }

    static SimpleRecord[] mixed() {
        String text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
        return new SimpleRecord[] {
            new SimpleRecord(T, utf8("key"), utf8("value")),
            new SimpleRecord(T + 1, null, utf8(text)),
            new SimpleRecord(T - 70, utf8("gone"), null),
            new SimpleRecord(T + 100_000, new byte[0], new byte[0]),
            new SimpleRecord(T + 3, utf8("h"), utf8(text), new Header[] {
                new RecordHeader("trace", utf8("abc")), new RecordHeader("empty", new byte[0]),
                new RecordHeader("null", (byte[]) null), new RecordHeader("é漢", utf8("x"))}),
        };
    }

    static MemoryRecords build(CompressionType codec, TimestampType type, long producerId, boolean transactional,
                               long baseOffset, SimpleRecord... records) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(codec).build(), type, baseOffset, T + 5, producerId, (short) (producerId < 0 ? -1 : 3),
            producerId < 0 ? -1 : 17, transactional, 9);
        for (SimpleRecord record : records)
            builder.append(record);
        return builder.build();
    }

    static void cleaned(String name, MemoryRecords original, Set<Long> keep, long now) {
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(now, 1000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keep.contains(record.offset());
            }
        };
        ByteBuffer out = ByteBuffer.allocate(8192);
        original.filterTo(new TopicPartition("t", 0), filter, out, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        out.flip();
        MemoryRecords result = MemoryRecords.readableRecords(out);
        MutableRecordBatch batch = result.batchIterator().next();
        String horizon = batch.deleteHorizonMs().isPresent() ? "" + batch.deleteHorizonMs().getAsLong() : "null";
        add(name, "\n  \"from\": " + quoted(bytes(original.buffer())) + ", \"horizon\": " + horizon + ",", result);
    }

    public static void main(String[] args) {
        for (CompressionType codec : CompressionType.values())
            add(codec.name, "", build(codec, TimestampType.CREATE_TIME, -1, false, 0, mixed()));
        add("log-append-time", "", build(CompressionType.NONE, TimestampType.LOG_APPEND_TIME, -1, false, 100, mixed()));
        MemoryRecords producer = add("transactional", "",
            build(CompressionType.NONE, TimestampType.CREATE_TIME, 4711, true, 5_000_000_000L, mixed()));
        SimpleRecord[] many = new SimpleRecord[400];
        for (int i = 0; i < many.length; i++)
            many[i] = new SimpleRecord(T + i * 50L, null, new byte[] {(byte) i});
        add("four-hundred", "", build(CompressionType.GZIP, TimestampType.CREATE_TIME, -1, false, 7, many));
        byte[] big = new byte[150_000];
        for (int i = 0; i < big.length; i++)
            big[i] = (byte) (i / 100);
        for (CompressionType codec : new CompressionType[] {CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD})
            add("big-" + codec.name, "", build(codec, TimestampType.CREATE_TIME, -1, false, 0, new SimpleRecord(T, null, big)));
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.COMMIT, ControlRecordType.ABORT})
            add(type.name().toLowerCase(), "", MemoryRecords.withEndTransactionMarker(42, T, 9, 4711, (short) 3,
                new EndTransactionMarker(type, 77)));

        long base = 5_000_000_000L;
        cleaned("cleaned-middle", producer, Set.of(base + 1, base + 3), T);
        cleaned("cleaned-to-tombstone", producer, Set.of(base + 2), T + 500);
        cleaned("cleaned-to-nothing", producer, Set.of(), T);
        cleaned("cleaned-log-append-time",
            build(CompressionType.NONE, TimestampType.LOG_APPEND_TIME, -1, false, 100, mixed()), Set.of(102L, 103L), T);
        cleaned("cleaned-log-append-time-to-nothing",
            build(CompressionType.SNAPPY, TimestampType.LOG_APPEND_TIME, -1, false, 100, mixed()), Set.of(), T);
        cleaned("cleaned-gzip", build(CompressionType.GZIP, TimestampType.CREATE_TIME, 4711, false, 0, mixed()),
            Set.of(0L, 2L, 4L), T);
        ByteBuffer tombstones = ByteBuffer.allocate(8192);
        producer.filterTo(new TopicPartition("t", 0), new MemoryRecords.RecordFilter(T, 1000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return true;
            }
        }, tombstones, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        tombstones.flip();
        cleaned("cleaned-again", MemoryRecords.readableRecords(tombstones), Set.of(base, base + 2), T + 9_999);
        System.out.println("[\n" + String.join(",\n", cases) + "\n]");
    }
}
