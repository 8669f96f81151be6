// undici, as Node's fetch is, through the proxy: `client.mjs PROXY CA UPSTREAM NGINX`.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { ProxyAgent, WebSocket, fetch } from "undici"

const [proxy, ca, upstream, nginx] = process.argv.slice(2)
const trust = { ca: readFileSync(ca, "utf8") }
const patience = () => AbortSignal.timeout(60_000)

async function check(allowH2) {
  const dispatcher = new ProxyAgent({ uri: proxy, requestTls: { ...trust, allowH2 }, allowH2 })
  const ask = (url, more) => fetch(url, { dispatcher, signal: patience(), ...more })
  const text = async (url, more) => (await ask(url, more)).text()
  assert.equal(await text(`${upstream}/protocol`), allowH2 ? "HTTP/2.0" : "HTTP/1.1")
  assert.equal((await text(`${nginx}/file`)).length, 1 << 20)
  const body = "x".repeat(8 << 20)
  assert.ok((await text(`${upstream}/echo`, { method: "POST", body })) === body)
  const events = await ask(`${upstream}/events?id=node-${allowH2}`)
  let seen = ""
  for await (const part of events.body.pipeThrough(new TextDecoderStream())) {
    seen += part
    if (seen === "data: first\n\n") assert.ok((await ask(`${upstream}/seen?id=node-${allowH2}`)).ok)
  }
  assert.equal(seen, "data: first\n\ndata: second\n\n")
  await dispatcher.close()
}

async function messages() {
  const dispatcher = new ProxyAgent({ uri: proxy, requestTls: trust })
  const socket = new WebSocket(`${upstream.replace("https", "wss")}/ws`, { dispatcher })
  const echoed = new Promise((done, failed) => {
    patience().onabort = () => failed(new Error("no message"))
    socket.onopen = () => socket.send("hello")
    socket.onerror = ({ error }) => failed(error)
    socket.onmessage = ({ data }) => done(data)
  })
  assert.equal(await echoed, "hello")
  socket.close()
  await dispatcher.close()
}

await check(false)
await check(true)
await messages()
