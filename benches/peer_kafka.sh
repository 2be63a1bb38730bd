#!/usr/bin/env bash
# Apache Kafka 3.9.1 with its own ZooKeeper, on the loopback address, from Maven's jars.
#   peer_kafka.sh start DIR PORT ZOOKEEPER_PORT [KEY=VALUE..]   prints the broker's process id when
#                                                            it listens
#   peer_kafka.sh stop DIR
# KAFKA_JARS is where the jars are kept (default ~/.cache/krust/kafka); they are fetched once, which
# needs mvn. Java's options are those of Kafka's own start script.
set -euo pipefail

version=3.9.1
lib=${KAFKA_JARS:-$HOME/.cache/krust/kafka}/$version/lib

fetch_jars() {
  [ -d "$lib" ] && return
  command -v mvn > /dev/null || { echo "no jars in $lib and no mvn to fetch them" >&2; exit 2; }
  local pom
  pom=$(mktemp -d)
  cat > "$pom/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>krust</groupId><artifactId>peer</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>$version</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
<version>$version</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId>
<version>1.7.36</version></dependency>
</dependencies></project>
XML
  (cd "$pom" && mvn -q -B dependency:copy-dependencies \
    "-DoutputDirectory=$lib.part" -DincludeScope=runtime >&2)
  mv "$lib.part" "$lib"
  rm -r "$pom"
}

wait_for() { # port pid log
  for _ in $(seq 600); do
    (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null && return
    kill -0 "$2" 2> /dev/null || break
    sleep 0.1
  done
  tail -5 "$3" >&2
  exit 1
}

start() { # dir port zookeeper-port, settings
  fetch_jars
  mkdir -p "$1"
  cat > "$1/log4j.properties" <<P
log4j.rootLogger=WARN, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=$1/server.log
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %m (%c)%n
P
  cat > "$1/zookeeper.properties" <<P
dataDir=$1/zookeeper
clientPort=$3
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
P
  cat > "$1/server.properties" <<P
broker.id=0
listeners=PLAINTEXT://127.0.0.1:$2
zookeeper.connect=127.0.0.1:$3
log.dirs=$1/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
P
  printf '%s\n' "${@:4}" >> "$1/server.properties"
  local log4j=-Dlog4j.configuration=file:$1/log4j.properties
  java -Xmx256m "$log4j" -cp "$lib/*" org.apache.zookeeper.server.quorum.QuorumPeerMain \
    "$1/zookeeper.properties" > "$1/zookeeper.out" 2>&1 &
  echo $! > "$1/zookeeper.pid"
  wait_for "$3" $! "$1/zookeeper.out"
  java -server -Xms1G -Xmx1G -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
    -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent \
    -XX:MaxInlineLevel=15 -Djava.awt.headless=true "$log4j" -cp "$lib/*" \
    kafka.Kafka "$1/server.properties" > "$1/kafka.out" 2>&1 &
  echo $! > "$1/kafka.pid"
  wait_for "$2" $! "$1/kafka.out"
  cat "$1/kafka.pid"
}

stop() { # dir; Kafka first: without ZooKeeper it cannot shut down
  for name in kafka zookeeper; do
    [ -f "$1/$name.pid" ] || continue
    kill "$(cat "$1/$name.pid")" 2> /dev/null || true
    for _ in $(seq 300); do
      kill -0 "$(cat "$1/$name.pid")" 2> /dev/null || break
      sleep 0.1
    done
  done
}

case ${1:-} in
  start) start "$(realpath -m "$2")" "${@:3}" ;;
  stop) stop "$(realpath -m "$2")" ;;
  *) sed -n 2,7p "$0"; exit 2 ;;
esac
