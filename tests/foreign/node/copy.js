// Writes values to partition 0 of a topic by kafkajs, reads them back and prints them as JSON.
//
// The task is JSON on stdin: where, what, and how to log in. Who is refused ends with 1, and the
// reason on stderr.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const task = JSON.parse(fs.readFileSync(0))

function tls() {
  if (!task.authority) return false
  const ca = [fs.readFileSync(task.authority)]
  if (!task.certificate) return { ca }
  return { ca, cert: fs.readFileSync(task.certificate), key: fs.readFileSync(task.key) }
}

function sasl() {
  if (!task.mechanism) return undefined
  const mechanism = task.mechanism.toLowerCase()
  if (mechanism === 'oauthbearer') {
    return { mechanism, oauthBearerProvider: async () => ({ value: task.token }) }
  }
  return { mechanism, username: task.user, password: task.password }
}

const kafka = new Kafka({
  brokers: [task.bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 6 },
  sasl: sasl(),
  ssl: tls(),
})

async function write() {
  const producer = kafka.producer()
  await producer.connect()
  for (const value of task.values) {
    await producer.send({ topic: task.topic, messages: [{ partition: 0, value }] })
  }
  await producer.disconnect()
}

async function read() {
  const consumer = kafka.consumer({ groupId: task.topic })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  const found = []
  await new Promise((resolve, reject) => {
    const take = async ({ message }) => {
      found.push(message.value.toString())
      if (found.length === task.values.length) resolve()
    }
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({ eachMessage: take }).catch(reject)
  })
  await consumer.disconnect()
  return found
}

write()
  .then(read)
  .then((found) => console.log(JSON.stringify(found)))
  .catch((error) => {
    console.error(`${error.name}: ${error.message}`)
    process.exit(1)
  })
