#!/usr/bin/env bash
# Apache Kafka beside krust, from Maven's jars, on loopback only.
#   kafka.sh jars VERSION [ARTIFACT ...]    fetch the jars of a broker and its tools, or of other
#                                           artifacts; print the folder that holds them
#   kafka.sh start VERSION DIR PORT OTHER   OTHER: the port of the ZooKeeper that 3.9.1 brings, or
#                                           HOST:PORT[/CHROOT] of one that runs; the port of the
#                                           controller in a later one
#   kafka.sh stop DIR                       what was started in DIR
# KAFKA_JARS: where jars are kept (~/.cache/krust/kafka). EXTRA: more lines for server.properties.
# KAFKA_OPTS: more options for Java, as in Kafka's own scripts.
# Returns when the port answers; the process ids lie in DIR/pids, the broker's last.
set -euo pipefail
cache=${KAFKA_JARS:-$HOME/.cache/krust/kafka}

jars() {
  local version=$1 folder=$cache/$1 artifact dependencies=""
  shift
  if (($#)); then folder+=$(printf '+%s' "$@"); else set -- kafka_2.13 kafka-tools; fi
  if [ ! -e "$folder/complete" ]; then
    mkdir -p "$folder"
    for artifact in "$@"; do
      dependencies+="<dependency><groupId>org.apache.kafka</groupId>"
      dependencies+="<artifactId>$artifact</artifactId><version>$version</version></dependency>"
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

# What Kafka's own start script gives to Java.
broker=(-server -Xms1G -Xmx1G -XX:+UseG1GC -XX:MaxGCPauseMillis=20
  -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15
  -Djava.awt.headless=true)

launch() { # dir port class properties options: start it, wait until the port answers
  java "${@:5}" ${KAFKA_OPTS:-} -cp "$lib/*" "$3" "$4" > "$1/$3.out" 2>&1 &
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

with_zookeeper() { # dir port zookeeper-port or zookeeper
  local connect=$3
  [[ $3 == *:* ]] || connect=127.0.0.1:$3
  { printf 'broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:%s\n' "$2"
    echo "zookeeper.connect=$connect"; common "$1"; } > "$1/server.properties"
  [[ $3 == *:* ]] || own_zookeeper "$1" "$3"
  launch "$1" "$2" kafka.Kafka "$1/server.properties" "${broker[@]}"
}

own_zookeeper() { # dir port
  printf 'dataDir=%s/zk\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n' \
    "$1" "$2" > "$1/zoo.cfg"
  launch "$1" "$2" org.apache.zookeeper.server.quorum.QuorumPeerMain "$1/zoo.cfg" -Xmx256m
}

with_controller() { # dir port controller-port
  { printf 'process.roles=broker,controller\nnode.id=1\n'
    printf 'controller.quorum.voters=1@127.0.0.1:%s\n' "$3"
    printf 'controller.listener.names=CONTROLLER\n'
    printf 'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n'
    printf 'listeners=PLAINTEXT://127.0.0.1:%s,CONTROLLER://127.0.0.1:%s\n' "$2" "$3"
    common "$1"
  } > "$1/server.properties"
  java ${KAFKA_OPTS:-} -cp "$lib/*" kafka.tools.StorageTool format --ignore-formatted \
    -t "k$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c2-22)" \
    -c "$1/server.properties" > "$1/format.out" 2>&1
  launch "$1" "$2" kafka.Kafka "$1/server.properties" "${broker[@]}"
}

stop() { # the broker first: without its ZooKeeper it cannot shut down
  local pid
  for pid in $(tac "$1/pids"); do
    kill "$pid" 2>/dev/null || continue
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  done
}

case ${1:-} in
  jars) jars "${@:2}" ;;
  start)
    dir=$(realpath -m "$3")
    mkdir -p "$dir" && : > "$dir/pids"
    for port in "${@:4}"; do if [[ $port != *:* ]] && answers "$port"; then echo "port $port is taken" >&2; exit 1; fi; done
    lib=$(jars "$2")
    case $2 in 3.*) with_zookeeper "$dir" "${@:4}" ;; *) with_controller "$dir" "${@:4}" ;; esac
    ;;
  stop) stop "$2" ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
