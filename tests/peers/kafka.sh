#!/usr/bin/env bash
# Apache Kafka beside krust, from Maven's jars, on loopback only.
#   kafka.sh jars VERSION                   fetch the jars; print the folder that holds them
#   kafka.sh start39 DIR PORT ZKPORT        3.9.1 with a ZooKeeper of its own
#   kafka.sh start4 DIR PORT                4.3.0, KRaft (PORT + 1 is the controller's)
#   kafka.sh stop DIR                       what was started in DIR
# KAFKA_JARS: where jars are kept (~/.cache/krust/kafka). EXTRA: more lines for server.properties.
# Returns when the port answers; the process ids lie in DIR/pids.
set -euo pipefail
cache=${KAFKA_JARS:-$HOME/.cache/krust/kafka}

jars() {
  local folder=$cache/$1 artifact dependencies=""
  if [ ! -e "$folder/complete" ]; then
    mkdir -p "$folder"
    for artifact in kafka_2.13 kafka-tools; do
      dependencies+="<dependency><groupId>org.apache.kafka</groupId>"
      dependencies+="<artifactId>$artifact</artifactId><version>$1</version></dependency>"
    done
    cat > "$folder/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>krust</groupId><artifactId>peer</artifactId><version>1</version>
<dependencies>$dependencies</dependencies></project>
POM
    (cd "$folder" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib \
      -DincludeScope=runtime >&2)
    touch "$folder/complete"
  fi
  echo "$folder/lib"
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

launch() { # dir port class properties: start in the background, wait until the port answers
  java -Xms1G -Xmx1G -cp "$lib/*" "$3" "$4" > "$1/$3.out" 2>&1 &
  echo $! >> "$1/pids"
  for _ in $(seq 600); do
    answers "$2" && return
    kill -0 $! 2>/dev/null || break
    sleep 0.1
  done
  tail -20 "$1/$3.out" >&2
  return 1
}

common() { # dir
  cat <<PROPERTIES
log.dirs=$1/data
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
${EXTRA:-}
PROPERTIES
}

start39() { # dir port zookeeper-port
  printf 'dataDir=%s/zk\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n' \
    "$1" "$3" > "$1/zoo.cfg"
  { common "$1"; printf 'broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:%s\n' "$2"
    echo "zookeeper.connect=127.0.0.1:$3"; } > "$1/server.properties"
  launch "$1" "$3" org.apache.zookeeper.server.quorum.QuorumPeerMain "$1/zoo.cfg"
  launch "$1" "$2" kafka.Kafka "$1/server.properties"
}

start4() { # dir port
  local controller=$(($2 + 1))
  { common "$1"; printf 'process.roles=broker,controller\nnode.id=1\n'
    printf 'controller.quorum.voters=1@127.0.0.1:%s\n' "$controller"
    printf 'controller.listener.names=CONTROLLER\n'
    printf 'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n'
    printf 'listeners=PLAINTEXT://127.0.0.1:%s,CONTROLLER://127.0.0.1:%s\n' "$2" "$controller"
  } > "$1/server.properties"
  java -cp "$lib/*" kafka.tools.StorageTool format --ignore-formatted \
    -t "$(java -cp "$lib/*" kafka.tools.StorageTool random-uuid 2>/dev/null | tail -1)" \
    -c "$1/server.properties" > "$1/format.out" 2>&1
  launch "$1" "$2" kafka.Kafka "$1/server.properties"
}

stop() { # the broker first: without its ZooKeeper it cannot shut down
  local pid
  for pid in $(tac "$1/pids"); do
    kill "$pid" 2>/dev/null || continue
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  done
}

case ${1:-} in
  jars) jars "$2" ;;
  start39 | start4)
    dir=$(realpath -m "$2")
    mkdir -p "$dir" && : > "$dir/pids"
    for port in "${@:3}"; do if answers "$port"; then echo "port $port is taken" >&2; exit 1; fi; done
    lib=$(jars "$([ "$1" = start39 ] && echo 3.9.1 || echo 4.3.0)")
    "$1" "$dir" "${@:3}"
    ;;
  stop) stop "$2" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
