import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.zip.CRC32;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka says of compressed batches and message sets: one line each, "stored" or the broker's error, and what its
 * consumer reads of the same bytes: the number of records and the CRC-32 of their values, or "fails".
 * Standard input: size (int32) and bytes of each; size -1 ends it.
 */
public class Frames {
    static final TopicPartition PARTITION = new TopicPartition("frames", 0);

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        PrintStream out = new PrintStream(System.out, false);
        ExecutorService threads = Executors.newCachedThreadPool(runnable -> {
            Thread thread = new Thread(runnable);
            thread.setDaemon(true);
            return thread;
        });
        for (int size = in.readInt(); size >= 0; size = in.readInt()) {
            byte[] data = new byte[size];
            in.readFully(data);
            String stored, read;
            try {
                stored = threads.submit(() -> stored(data.clone())).get(20, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                stored = "HANGS";
            }
            try {
                read = threads.submit(() -> read(data)).get(20, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                read = "hangs";
            }
            out.println(stored + " " + read);
        }
        out.flush();
    }

    static String stored(byte[] data) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
            CompressionType source = CompressionType.NONE;
            for (MutableRecordBatch batch : records.batches()) {
                batch.ensureValid();
                source = batch.compressionType();
            }
            Class<?> recorder = LogValidator.MetricsRecorder.class;
            Object metrics = Proxy.newProxyInstance(recorder.getClassLoader(), new Class<?>[] {recorder}, (p, m, v) -> null);
            validator(records, source).validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(0), (LogValidator.MetricsRecorder) metrics, BufferSupplier.create());
            return "stored";
        } catch (RecordValidationException e) {
            return Errors.forException(e.invalidException()).name();
        } catch (Throwable e) {
            return Errors.forException(e).name();
        }
    }

    /** Kafka 3.9's has an argument more. */
    static LogValidator validator(MemoryRecords records, CompressionType source) throws Exception {
        Constructor<?> constructor = LogValidator.class.getConstructors()[0];
        Object[] values = {records, PARTITION, Time.SYSTEM, source, Compression.of(source).build(), false,
            RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT};
        for (Constructor<?> each : LogValidator.class.getConstructors())
            if (each.getParameterCount() < constructor.getParameterCount())
                constructor = each;
        if (constructor.getParameterCount() > values.length) {
            values = java.util.Arrays.copyOf(values, values.length + 1);
            values[values.length - 1] = Class.forName("org.apache.kafka.server.common.MetadataVersion")
                .getMethod("latestProduction").invoke(null);
        }
        return (LogValidator) constructor.newInstance(values);
    }

    static String read(byte[] data) {
        try {
            CRC32 values = new CRC32();
            int count = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batch.ensureValid();
                try (CloseableIterator<Record> iterator = batch.streamingIterator(BufferSupplier.create())) {
                    while (iterator.hasNext()) {
                        Record record = iterator.next();
                        record.ensureValid();
                        values.update(record.value());
                        count++;
                    }
                }
            }
            return count + ":" + values.getValue();
        } catch (Throwable e) {
            return "fails";
        }
    }
}
