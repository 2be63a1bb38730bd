// Writes values to partition 0 of a topic by franz-go, reads them back and prints them as JSON.
//
// The task is JSON on stdin: where, what, and how to log in. Who is refused ends with 1, and the
// reason on stderr.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const limit = 50 * time.Second

type task struct {
	Bootstrap, Topic                 string
	Values                           []string
	Mechanism, User, Password, Token string
	Authority, Certificate, Key      string
}

func main() {
	var given task
	err := json.NewDecoder(os.Stdin).Decode(&given)
	var found []string
	if err == nil {
		found, err = copied(given)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func copied(given task) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	options, err := connection(given)
	if err != nil {
		return nil, err
	}
	if err := written(ctx, given, options); err != nil {
		return nil, err
	}
	return read(ctx, given, options)
}

func written(ctx context.Context, given task, options []kgo.Opt) error {
	own := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	producer, err := kgo.NewClient(append(own, options...)...)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil {
		return err
	}
	for _, value := range given.Values {
		record := &kgo.Record{Topic: given.Topic, Value: []byte(value)}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func read(ctx context.Context, given task, options []kgo.Opt) ([]string, error) {
	start := map[string]map[int32]kgo.Offset{given.Topic: {0: kgo.NewOffset().AtStart()}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(start))...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []string{}
	for len(found) < len(given.Values) {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	return found, nil
}

func connection(given task) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(given.Bootstrap)}
	if given.Mechanism != "" {
		mechanism, err := login(given)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	if given.Authority == "" {
		return options, nil
	}
	authority, err := os.ReadFile(given.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, errors.New("no authority in " + given.Authority)
	}
	if given.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return append(options, kgo.DialTLSConfig(config)), nil
}

func login(given task) (sasl.Mechanism, error) {
	challenged := scram.Auth{User: given.User, Pass: given.Password}
	switch given.Mechanism {
	case "PLAIN":
		return plain.Auth{User: given.User, Pass: given.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return challenged.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return challenged.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: given.Token}.AsMechanism(), nil
	}
	return nil, errors.New("no mechanism " + given.Mechanism)
}
