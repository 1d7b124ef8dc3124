/**
 * What the proxy is measured against: an upstream, a bare pass-through in the same runtime, and nginx.
 *
 * Run as a program this file is one of the first two (`upstream`, `pass-through <origin>`), in a process of its own
 * that ends when the channel to its parent process closes.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer as createTcp, type Server, type Socket } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Agent } from 'undici';

/** The core of whatever is measured; the load and the upstream have another. */
export const measuredCore = 0;
export const otherCore = 1;

/** As the program begins: once it is pinned itself, it sees one core. */
const cores = availableParallelism();

const bigBytes = 100 * 1024 * 1024;

export type Part = { url: string; pid: number; stop: () => Promise<unknown> };

if (import.meta.main) {
  if (process.argv[2] === 'upstream') serveUpstream();
  else servePassThrough(process.argv[3] ?? '');
}

/** Small answers come from a bare socket, so that the upstream is never what is measured. */
function serveUpstream(): void {
  const small = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n${'x'.repeat(1024)}`;
  const large = createServer(serveLarge);
  large.listen(0, '127.0.0.1', () => {
    const { port } = large.address() as AddressInfo;
    tellPort(
      createTcp((socket) => {
        let seen = '';
        socket.on('error', () => {});
        socket.on('data', (chunk: Buffer) => {
          seen += chunk.toString('latin1');
          for (let end = seen.indexOf('\r\n\r\n'); end !== -1; end = seen.indexOf('\r\n\r\n')) {
            if (/^\w+ \/(big|slow)/.test(seen)) {
              hand(socket, { seen, port });
              return;
            }
            seen = seen.slice(end + 4);
            socket.write(small);
          }
        });
      }),
    );
  });
}

/** Gives a connection over to the server of bodies and streams. */
function hand(socket: Socket, { seen, port }: { seen: string; port: number }): void {
  socket.removeAllListeners('data');
  const inner = connect(port, '127.0.0.1');
  inner.on('error', () => socket.destroy());
  inner.write(seen, 'latin1');
  socket.pipe(inner).pipe(socket);
}

function serveLarge(request: IncomingMessage, response: ServerResponse): void {
  if (request.url?.includes('/slow')) {
    const timer = setInterval(() => response.write('x'.repeat(100)), 1_000);
    response.on('close', () => clearInterval(timer));
    response.writeHead(200).flushHeaders();
    return;
  }
  const block = Buffer.alloc(256 * 1024, 'x');
  let left = bigBytes;
  response.writeHead(200, { 'content-length': bigBytes });
  const push = () => {
    while (left > 0) {
      left -= block.length;
      if (!response.write(block)) break;
    }
    if (left <= 0) response.end();
  };
  response.on('drain', push);
  push();
}

/** No key, no rules, no guard: what a proxy costs in this runtime before it does anything. */
function servePassThrough(origin: string): void {
  const agent = new Agent({ allowH2: false });
  tellPort(
    createServer((request, response) => {
      const { url: path = '/', method = 'GET', headers } = request;
      const { host: _host, connection: _connection, ...passed } = headers;
      const body = method === 'GET' ? null : request;
      agent
        .stream({ origin, path, method, headers: passed, body }, ({ statusCode, headers }) => {
          const { connection: _hop, 'keep-alive': _time, ...kept } = headers;
          return response.writeHead(statusCode, kept);
        })
        .catch(() => response.destroy());
    }),
  );
}

function tellPort(server: Server): void {
  server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port));
  process.on('disconnect', () => process.exit());
}

/** This file in another process, on one core. */
export async function startPart(core: number, ...words: string[]): Promise<Part> {
  const child = spawn(process.execPath, [import.meta.filename, ...words], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const [port] = (await once(createInterface({ input: child.stdout! }), 'line')) as [string];
  await pin(child.pid!, core);
  const exited = once(child, 'exit');
  const stop = () => {
    child.disconnect();
    return exited;
  };
  return { url: `http://127.0.0.1:${port}`, pid: child.pid!, stop };
}

/** nginx with one worker, keep-alive to the upstream and no buffering to disk; undefined where it is not installed. */
export async function startNginx(upstream: string): Promise<Part | undefined> {
  const port = await freePort();
  const directory = await mkdtemp(join(tmpdir(), 'trellis-nginx-'));
  const config = join(directory, 'nginx.conf');
  await writeFile(
    config,
    `daemon off; worker_processes 1; pid ${directory}/pid; error_log stderr crit;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 100000000; proxy_max_temp_file_size 0;
  client_body_temp_path ${directory}/body; proxy_temp_path ${directory}/proxy; fastcgi_temp_path ${directory}/f;
  uwsgi_temp_path ${directory}/u; scgi_temp_path ${directory}/s;
  upstream up { server ${new URL(upstream).host}; keepalive 256; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port};
    location /proxy/ { proxy_pass http://up/; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}`,
  );
  const child = spawn('nginx', ['-c', config], { stdio: 'inherit' });
  const ended = new Promise<void>((resolve) =>
    child.once('error', () => resolve()).once('exit', () => resolve()),
  );
  const isUp = await Promise.race([ended.then(() => false), listens(port)]);
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    await rm(directory, { recursive: true, force: true });
  };
  if (!isUp) {
    await stop();
    return undefined;
  }
  const children = await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
  const worker = Number(children.trim().split(' ')[0]);
  await pin(worker, measuredCore);
  return { url: `http://127.0.0.1:${port}`, pid: worker, stop };
}

async function listens(port: number): Promise<boolean> {
  for (let tries = 0; tries < 50; tries++) {
    const isThere = await fetch(`http://127.0.0.1:${port}/`).then(
      () => true,
      () => false,
    );
    if (isThere) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}

async function freePort(): Promise<number> {
  const probe = createTcp().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Keeps all threads of a process on one core, where the machine has more than one. */
export async function pin(pid: number, core: number): Promise<void> {
  if (cores < 2) return;
  const child = spawn('taskset', ['-acp', String(core), String(pid)], { stdio: 'ignore' });
  await once(child, 'exit');
}

/** Processor time that a process has used, user and system, in ms (proc(5), `stat`; a tick is 10 ms). */
export async function cpuMsOf(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
