// A Bulla of its own for the tests of the console: `bulla up` with every role, in a temporary folder.
import { execFile, spawn } from 'node:child_process';
import { createWriteStream, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const WAIT_SECONDS = 180;
const OUTPUT_BYTES_MAX = 64 << 20;

// Waits for a condition. A machine that runs other tests may take minutes for what takes a second.
export async function until(what, found) {
  const end = Date.now() + WAIT_SECONDS * 1000;
  for (;;) {
    const value = await found();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${WAIT_SECONDS} s`);
    await pause(250);
  }
}

export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

// Runs a program. The event loop goes on: it may have servers that the program calls.
export function run(program, line, { input = '', ...options } = {}) {
  return new Promise((done) => {
    const child = execFile(program, line, { encoding: 'utf8', maxBuffer: OUTPUT_BYTES_MAX, ...options }, (error, stdout, stderr) =>
      done({ ok: !error, stdout, stderr: stderr || error?.message || '' }));
    child.stdin.on('error', () => {});
    child.stdin.end(input);
  });
}

// Starts the server and waits until it answers. `settings` and `rules` are further lines of its configuration: tables, and the end
// of the proxy's table.
export async function startServer(home, { settings, rules }) {
  const program = resolve(process.env.BULLA ?? 'target/debug/bulla');
  // Other servers on this machine may have the default ports.
  const [api, credentials, open, nodes, proxy] =
    [await freePort(), await freePort(), await freePort(), await freePort(), await freePort()];
  const [data, policy] = [join(home, '.local/share/bulla'), join(home, 'agent.toml')];
  mkdirSync(join(home, '.config/bulla'), { recursive: true });
  writeFileSync(join(home, '.config/bulla/bulla.toml'), `[keys]
metrics_listen = ""
reload_s = 1
[keys.node]
listen = "127.0.0.1:${nodes}"
[agent]
policy = "${policy}"
${settings}
[proxy]
listen = "127.0.0.1:${proxy}"
metrics_listen = ""
upstream_ca_files = ["${join(data, 'root.pem')}"]
[proxy.policy]
allow_networks = ["127.0.0.0/8"]
[[proxy.policy.rules]]
name = "orders <b>"
host = ["held.example.net"]
port = [80]
action = "hold"
hold_for_s = 3600
${rules}`);
  const env = { ...process.env, HOME: home, XDG_DATA_HOME: '', XDG_CONFIG_HOME: '', XDG_STATE_HOME: '' };
  for (const name of Object.keys(env)) if (name.startsWith('XDG_') || name.startsWith('BULLA_')) delete env[name];
  // With a policy, `bulla up` has the role agent. The policy allows nothing yet.
  const begun = await run(program, ['agent', 'policy', 'init', '--policy', policy], { env });
  if (!begun.ok) throw new Error(`bulla agent policy init: ${begun.stderr}`);
  const listen = ['--listen', `127.0.0.1:${api}`, '--credential-listen', `127.0.0.1:${credentials}`, '--public-listen', `127.0.0.1:${open}`];
  const child = spawn(program, ['up', ...listen], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const log = createWriteStream(join(home, 'up.log'));
  child.stdout.pipe(log);
  child.stderr.pipe(log);
  const url = `https://localhost:${api}`;
  const where = ['--server', url, '--token-file', join(data, 'admin.token'), '--server-ca', join(data, 'root.pem')];
  const succeed = async (line, input) => {
    const { ok, stdout, stderr } = await run(program, line, { env, input });
    if (!ok) throw new Error(`bulla ${line.join(' ')}: ${stderr || stdout}`);
    return stdout;
  };
  const server = {
    url,
    proxy,
    data,
    policy,
    async stop() {
      if (child.exitCode !== null) return;
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
    },
    log: () => readFileSync(join(home, 'up.log'), 'utf8'),
    // A command that talks to the server, and one that does not.
    bulla: (...line) => succeed([...line, ...where]),
    bullaWith: (input, ...line) => succeed([...line, ...where], input),
    local: (...line) => succeed(line),
    async post(path, body) {
      const answer = await succeed(['api', '-X', 'POST', path, '--file', '-', ...where], JSON.stringify(body));
      return JSON.parse(answer || 'null');
    },
  };
  const answers = async () => {
    if (child.exitCode !== null) throw new Error(`bulla up ended:\n${server.log()}`);
    return existsSync(join(data, 'admin.token')) && (await run(program, ['cert', 'list', ...where], { env })).ok;
  };
  await until('bulla up', answers).catch((error) => {
    child.kill('SIGKILL');
    throw new Error(`${error.message}\n${server.log()}`);
  });
  return server;
}
