// kafkajs logs in by each of the ways in a JSON file, writes records and reads them. Arguments: the file, and the
// beginning of the topics' names. Prints "ok" last.
const assert = require('node:assert')
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const [file, prefix] = process.argv.slice(2)
const VALUES = Array.from({ length: 10 }, (_, n) => `value-${n}`)

function options({ address, ca, certificate, mechanism, user, password, token }) {
  const ssl = { ca: [fs.readFileSync(ca)] }
  if (certificate) Object.assign(ssl, { key: fs.readFileSync(certificate), cert: fs.readFileSync(certificate) })
  let sasl
  if (mechanism === 'OAUTHBEARER') {
    sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  } else if (mechanism) {
    sasl = { mechanism: mechanism.toLowerCase(), username: user, password }
  }
  // Sessions may last for 1.5 s, and a second login within a second is refused.
  const reauthenticationThreshold = 200
  return { clientId: 'logins', brokers: [address], logLevel: logLevel.NOTHING, ssl, sasl, reauthenticationThreshold }
}

async function roundTrip(login, topic) {
  const kafka = new Kafka(options(login))
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: VALUES.map((value) => ({ value })) })
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const read = []
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`read ${read.length} records within 60 s`)), 60000).unref()
    const eachMessage = async ({ message }) => {
      read.push(message.value.toString())
      if (read.length === VALUES.length) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  assert.deepStrictEqual(read, VALUES)
  await consumer.disconnect()
}

async function main() {
  for (const login of JSON.parse(fs.readFileSync(file, 'utf8'))) {
    const name = login.mechanism || 'certificate'
    try {
      await roundTrip(login, `${prefix}-${name}`)
    } catch (failure) {
      throw new Error(name, { cause: failure })
    }
  }
  console.log('ok')
}

main().then(
  () => process.exit(0),
  (failure) => {
    console.error(failure)
    process.exit(1)
  },
)
