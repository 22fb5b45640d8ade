// kafkajs: an idempotent producer with keys, headers and timestamps, a group of two that becomes one, admin calls.
// Arguments: broker address, topic (not there yet). Prints "ok" last.
const assert = require('node:assert')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [address, topic] = process.argv.slice(2)
const PARTITIONS = 4
const RECORDS = 2000
// An hour ago: old enough to differ from append time, too young for retention.
const FIRST_TIME = Date.now() - 3600000
const groupId = `${topic}-group`
const kafka = new Kafka({ clientId: 'round-trip', brokers: [address], logLevel: logLevel.NOTHING })

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(truth, what) {
  const end = Date.now() + 60000
  while (!(await truth())) {
    assert.ok(Date.now() < end, `not within 60 s: ${what}`)
    await pause(20)
  }
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const next = new Map()
  for (let first = 0; first < RECORDS; first += 200) {
    const messages = []
    for (let n = first; n < first + 200; n++) {
      messages.push({
        partition: n % PARTITIONS,
        key: `key-${n % 11}`,
        value: n % 100 === 99 ? null : `value-${n}`,
        timestamp: String(FIRST_TIME + n),
        headers: { number: String(n), empty: '' },
      })
    }
    const compression = first % 400 === 0 ? CompressionTypes.GZIP : CompressionTypes.None
    for (const { partition, errorCode, baseOffset } of await producer.send({ topic, acks: -1, compression, messages })) {
      assert.strictEqual(errorCode, 0)
      assert.strictEqual(Number(baseOffset), next.get(partition) ?? 0)
      next.set(partition, Number(baseOffset) + 200 / PARTITIONS)
    }
  }
  await producer.disconnect()
}

const seen = new Map()
const given = [0, 0]

async function member(index) {
  const times = { heartbeatInterval: 300, sessionTimeout: 10000, rebalanceTimeout: 10000, maxWaitTimeInMs: 200 }
  const consumer = kafka.consumer({ groupId, ...times })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    given[index] = (payload.memberAssignment[topic] ?? []).length
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const n = Number(message.headers.number.toString())
      assert.strictEqual(partition, n % PARTITIONS)
      assert.strictEqual(Number(message.offset), Math.floor(n / PARTITIONS))
      assert.strictEqual(Number(message.timestamp), FIRST_TIME + n)
      assert.strictEqual(message.key.toString(), `key-${n % 11}`)
      assert.strictEqual(message.value === null ? null : message.value.toString(), n % 100 === 99 ? null : `value-${n}`)
      assert.strictEqual(message.headers.empty.length, 0)
      seen.set(n, (seen.get(n) ?? 0) + 1)
    },
  })
  return consumer
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  assert.ok(await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }], waitForLeaders: true }))
  // A leader is named before it serves: ask each partition for its offsets until it answers.
  await until(() => admin.fetchTopicOffsets(topic).then(() => true, () => false), 'leaders serve')
  await produce()

  const first = await member(0)
  await until(() => given[0] === PARTITIONS, 'the first member has all')
  const second = await member(1)
  await until(() => given[0] === 2 && given[1] === 2, 'both members have two')
  const described = (await admin.describeGroups([groupId])).groups[0]
  assert.strictEqual(described.state, 'Stable')
  assert.strictEqual(described.members.length, 2)
  await first.disconnect()
  await until(() => given[1] === PARTITIONS, 'the second member has all')
  await until(() => seen.size === RECORDS, 'every record was seen')
  await second.disconnect()

  const [{ partitions: committed }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  for (const { offset } of committed) assert.strictEqual(Number(offset), RECORDS / PARTITIONS)
  const [{ low, high }] = await admin.fetchTopicOffsets(topic)
  assert.deepStrictEqual([low, high], ['0', String(RECORDS / PARTITIONS)])
  const at = await admin.fetchTopicOffsetsByTimestamp(topic, FIRST_TIME + 1000)
  assert.strictEqual(at.find(({ partition }) => partition === 0).offset, '250')
  assert.strictEqual((await admin.describeCluster()).brokers.length, 1)
  const config = await admin.describeConfigs({ resources: [{ type: 2, name: topic }] })
  assert.ok(config.resources[0].configEntries.some(({ configName }) => configName === 'retention.ms'))
  await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS + 2 }] })
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '10' }] })
  const lows = await admin.fetchTopicOffsets(topic)
  assert.strictEqual(lows.find(({ partition }) => partition === 0).low, '10')
  assert.strictEqual((await admin.deleteGroups([groupId]))[0].errorCode, 0)
  await admin.deleteTopics({ topics: [topic] })
  await until(async () => !(await admin.listTopics()).includes(topic), 'the topic is gone')
  await admin.disconnect()
  console.log('ok')
}

main().then(
  () => process.exit(0),
  (failure) => {
    console.error(failure)
    process.exit(1)
  },
)
