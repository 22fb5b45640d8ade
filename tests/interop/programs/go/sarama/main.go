// sarama: an idempotent producer with each codec, keys, headers and timestamps; a group of two that becomes one;
// admin calls. Arguments: broker address, topic (not there yet).
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 6
	records    = 3000
)

// An hour ago: old enough to differ from append time, too young for retention.
var firstTime = time.Now().UnixMilli() - 3600000

func check(truth bool, format string, arguments ...any) {
	if !truth {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "%v", err)
	return value
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	return c
}

func produce(address, topic string) {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
		sarama.CompressionZSTD,
	}
	share := records / len(codecs)
	for index, codec := range codecs {
		c := config()
		c.Producer.Idempotent = true
		c.Producer.RequiredAcks = sarama.WaitForAll
		c.Producer.Return.Successes = true
		c.Producer.Partitioner = sarama.NewManualPartitioner
		c.Producer.Compression = codec
		c.Net.MaxOpenRequests = 1
		producer := must(sarama.NewSyncProducer([]string{address}, c))
		batch := []*sarama.ProducerMessage{}
		for n := index * share; n < (index+1)*share; n++ {
			batch = append(batch, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(n % partitions), Timestamp: time.UnixMilli(firstTime + int64(n)),
				Key:     sarama.StringEncoder(fmt.Sprintf("key-%d", n%11)),
				Value:   sarama.StringEncoder(fmt.Sprintf("value-%d", n)),
				Headers: []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(fmt.Sprint(n))}},
			})
		}
		check(producer.SendMessages(batch) == nil, "produce with %v", codec)
		check(producer.Close() == nil, "close")
	}
}

type crowd struct {
	sync.Mutex
	seen  map[int]int
	given [2]int
}

func (c *crowd) until(what string, truth func() bool) {
	end := time.Now().Add(60 * time.Second)
	for {
		c.Lock()
		holds := truth()
		c.Unlock()
		if holds {
			return
		}
		check(time.Now().Before(end), "not within 60 s: %s", what)
		time.Sleep(10 * time.Millisecond)
	}
}

type member struct {
	crowd *crowd
	topic string
	index int
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.crowd.Lock()
	defer m.crowd.Unlock()
	m.crowd.given[m.index] = len(session.Claims()[m.topic])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			n := int(record.Offset)*partitions + int(record.Partition)
			check(record.Timestamp.UnixMilli() == firstTime+int64(n), "time of %d", n)
			check(string(record.Key) == fmt.Sprintf("key-%d", n%11), "key of %d", n)
			check(string(record.Value) == fmt.Sprintf("value-%d", n), "value of %d", n)
			check(string(record.Headers[0].Value) == fmt.Sprint(n), "header of %d", n)
			session.MarkMessage(record, "seen")
			m.crowd.Lock()
			m.crowd.seen[n]++
			m.crowd.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *crowd) join(address, topic string, index int) func() {
	group := must(sarama.NewConsumerGroup([]string{address}, topic+"-group", config()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := group.Consume(ctx, []string{topic}, &member{c, topic, index})
			check(err == nil, "consume: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
		check(group.Close() == nil, "close")
	}
}

func main() {
	address, topic := os.Args[1], os.Args[2]
	admin := must(sarama.NewClusterAdmin([]string{address}, config()))
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	check(admin.CreateTopic(topic, detail, false) == nil, "create")
	produce(address, topic)

	group := &crowd{seen: map[int]int{}}
	leaveFirst := group.join(address, topic, 0)
	group.until("the first member has all", func() bool { return group.given[0] == partitions })
	leaveSecond := group.join(address, topic, 1)
	group.until("both members have three", func() bool { return group.given[0] == 3 && group.given[1] == 3 })
	described := must(admin.DescribeConsumerGroups([]string{topic + "-group"}))[0]
	check(described.State == "Stable" && len(described.Members) == 2, "group: %v", described)
	leaveFirst()
	group.until("the second member has all", func() bool { return group.given[1] == partitions })
	group.until("every record was seen", func() bool { return len(group.seen) == records })
	leaveSecond()

	committed := must(admin.ListConsumerGroupOffsets(topic+"-group", map[string][]int32{topic: {0, 1, 2, 3, 4, 5}}))
	for partition := int32(0); partition < partitions; partition++ {
		block := committed.GetBlock(topic, partition)
		check(block != nil && block.Offset == records/partitions, "committed: %v", block)
	}
	configs := must(admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}))
	check(len(configs) > 20, "configs: %v", configs)
	check(admin.DeleteRecords(topic, map[int32]int64{0: 10}) == nil, "delete records")
	client := must(sarama.NewClient([]string{address}, config()))
	check(must(client.GetOffset(topic, 0, sarama.OffsetOldest)) == 10, "start")
	check(must(client.GetOffset(topic, 0, firstTime+6*100)) == 100, "by time")
	check(client.Close() == nil, "close")
	check(admin.DeleteConsumerGroup(topic+"-group") == nil, "delete group")
	check(admin.DeleteTopic(topic) == nil, "delete topic")
	fmt.Println("ok")
}
