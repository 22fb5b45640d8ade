// franz-go and sarama log in by each of the ways in a JSON file, write records and read them. Arguments: the client
// ("kgo" or "sarama"), the file, and the beginning of the topics' names. Prints "ok" last.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const records = 10

type login struct {
	Address, CA, Certificate, Mechanism, User, Password, Token string
	TokenAuth                                                  bool
}

func (l login) name() string {
	switch {
	case l.TokenAuth:
		return "delegation-token"
	case l.Mechanism == "":
		return "certificate"
	}
	return l.Mechanism
}

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

func (l login) tls() *tls.Config {
	trusted := x509.NewCertPool()
	check(trusted.AppendCertsFromPEM(must(os.ReadFile(l.CA))), "authorities")
	made := &tls.Config{RootCAs: trusted}
	if l.Certificate != "" {
		made.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(l.Certificate, l.Certificate))}
	}
	return made
}

func (l login) sasl() sasl.Mechanism {
	scrammed := scram.Auth{User: l.User, Pass: l.Password, IsToken: l.TokenAuth}
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scrammed.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scrammed.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: l.Token}.AsMechanism()
	}
	return nil
}

func value(n int) string { return fmt.Sprintf("value-%d", n) }

func byKgo(l login, topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options := []kgo.Opt{kgo.SeedBrokers(l.Address), kgo.DialTLSConfig(l.tls()), kgo.AllowAutoTopicCreation()}
	if mechanism := l.sasl(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	producer := must(kgo.NewClient(options...))
	for n := 0; n < records; n++ {
		err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value(n))}).FirstErr()
		check(err == nil, "%s: produce: %v", l.name(), err)
	}
	producer.Close()
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	consumer := must(kgo.NewClient(append(options, kgo.ConsumePartitions(start))...))
	for n := 0; n < records; {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err() == nil, "%s: consume: %v", l.name(), fetches.Err())
		for _, record := range fetches.Records() {
			check(string(record.Value) == value(n), "%s: read %s", l.name(), record.Value)
			n++
		}
	}
	consumer.Close()
}

// A SCRAM login for sarama, which has none of its own.
type scramLogin struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	first     []byte
	done      bool
}

func (s *scramLogin) Begin(_, _, _ string) (err error) {
	s.session, s.first, err = s.mechanism.Authenticate(context.Background(), "")
	return err
}

func (s *scramLogin) Step(challenge string) (string, error) {
	if first := s.first; first != nil {
		s.first = nil
		return string(first), nil
	}
	done, answer, err := s.session.Challenge([]byte(challenge))
	s.done = done
	return string(answer), err
}

func (s *scramLogin) Done() bool { return s.done }

type tokens string

func (t tokens) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func bySarama(l login, topic string) {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	c.Net.TLS.Enable, c.Net.TLS.Config = true, l.tls()
	if l.Mechanism != "" {
		c.Net.SASL.Enable, c.Net.SASL.Version = true, sarama.SASLHandshakeV1
		c.Net.SASL.Mechanism = sarama.SASLMechanism(l.Mechanism)
		c.Net.SASL.User, c.Net.SASL.Password = l.User, l.Password
		c.Net.SASL.TokenProvider = tokens(l.Token)
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramLogin{mechanism: l.sasl()} }
	}
	addresses := []string{l.Address}
	producer := must(sarama.NewSyncProducer(addresses, c))
	for n := 0; n < records; n++ {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value(n))})
		check(err == nil, "%s: produce: %v", l.name(), err)
	}
	check(producer.Close() == nil, "close")
	consumer := must(sarama.NewConsumer(addresses, c))
	partition := must(consumer.ConsumePartition(topic, 0, sarama.OffsetOldest))
	for n := 0; n < records; n++ {
		select {
		case read := <-partition.Messages():
			check(string(read.Value) == value(n), "%s: read %s", l.name(), read.Value)
		case <-time.After(time.Minute):
			check(false, "%s: read %d records within 60 s", l.name(), n)
		}
	}
	check(partition.Close() == nil && consumer.Close() == nil, "close")
}

func main() {
	client, file, prefix := os.Args[1], os.Args[2], os.Args[3]
	var logins []login
	check(json.Unmarshal(must(os.ReadFile(file)), &logins) == nil, "logins")
	for _, each := range logins {
		topic := prefix + "-" + each.name()
		if client == "kgo" {
			byKgo(each, topic)
		} else {
			bySarama(each, topic)
		}
	}
	fmt.Println("ok")
}
