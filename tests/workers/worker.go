// Works on the jobs of a queue, one after the other, until SIGTERM. Written for gopkg.in/redis.v5 (Debian:
// golang-gopkg-redis.v5-dev); with github.com/redis/go-redis/v9 only the imports and `ask` change.
package main

import (
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"gopkg.in/redis.v5"
)

var (
	queue    = env("QUEUE", "mail")
	lease, _ = strconv.Atoi(env("LEASE", "30000")) // ms
	client   = redis.NewClient(&redis.Options{
		Addr:        env("REDIS_HOST", "localhost") + ":" + env("REDIS_PORT", "6379"),
		ReadTimeout: 10 * time.Second, // longer than BLOCK
	})
	me   string
	stop atomic.Bool
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// Yours; this one sleeps so many ms. An error fails the job. Once gone is closed, nobody wants the result.
func work(payload string, gone <-chan struct{}) (string, error) {
	ms, err := strconv.Atoi(payload)
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
	case <-gone:
	}
	return fmt.Sprintf("slept %d ms", ms), nil
}

// With v9: return client.Do(context.Background(), words...).Result()
func ask(words ...interface{}) (interface{}, error) {
	command := redis.NewCmd(words...)
	client.Process(command)
	return command.Result()
}

// Asks until there is an answer: all that a worker says may be said twice.
func call(words ...interface{}) (interface{}, error) {
	for {
		answer, err := ask(words...)
		_, broken := err.(net.Error)
		again := broken || err == io.EOF || err != nil && strings.HasPrefix(err.Error(), "LOADING")
		if !again || stop.Load() {
			return answer, err
		}
		time.Sleep(time.Second)
	}
}

func run(job, token, payload interface{}) error {
	if stop.Load() { // while it waited for a job
		_, err := call("RQ.RELEASE", queue, job, token)
		return err
	}
	gone, finished := make(chan struct{}), make(chan struct{})
	go func() { // the heartbeat
		for {
			select {
			case <-finished:
				return
			case <-time.After(time.Duration(lease) * time.Millisecond / 3):
			}
			answer, err := ask("RQ.EXTEND", queue, me, "LEASE", lease, job, token)
			if err == nil && answer.([]interface{})[0] != "ok" { // lost, or cancelled; an error: the next beat may get through
				close(gone)
				return
			}
		}
	}()
	result, err := work(payload.(string), gone)
	close(finished)
	verdict := []interface{}{"RQ.ACK", queue, job, token, "RESULT", result}
	if err != nil {
		verdict = []interface{}{"RQ.FAIL", queue, job, token, "ERROR", err.Error()}
	}
	select {
	case <-gone:
		verdict = []interface{}{"RQ.RELEASE", queue, job, token}
	default:
	}
	_, err = call(verdict...)
	return err
}

func main() {
	rand.Seed(time.Now().UnixNano())
	host, _ := os.Hostname()
	me = fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32()) // no other has this name, ever
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() { <-signals; stop.Store(true) }()
	for !stop.Load() {
		jobs, err := call("RQ.CLAIM", queue, me, "BLOCK", 5000, "LEASE", lease)
		if err == nil {
			for _, job := range jobs.([]interface{}) {
				parts := job.([]interface{})
				err = run(parts[0], parts[1], parts[2])
			}
		}
		if err != nil && err != redis.Nil { // STALE: it is another's job now
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}
