/** Functions that mean harm, and what becomes of each. */
import type { FailureCause, RunLimits } from '../../../server/functions/isolation/run-order.ts';

export type Hostile = {
  code: string;
  limits?: Partial<RunLimits>;
  /** How it fails, and what its author reads; or what it returns, where the attempt came to nothing. */
  fails?: [FailureCause, RegExp];
  returns?: unknown;
};

const run = (body: string) => `exports.default = async (service, input) => { ${body} };`;
const soon = { timeoutMs: 400 };

/** Every class and module that a function is given, and ways from it to the realm of Node. */
const ways = `
  const modules = ['buffer', 'crypto', 'events', 'stream', 'url', 'util'].map((name) => require(name));
  const given = [...modules, Buffer, URL, URLSearchParams, AbortController, TextEncoder, EventTarget, Blob, console,
    setTimeout, setTimeout(() => {}, 1), service, service.call, service.log, service.signal, require, module, exports,
    Buffer.from('a'), new URL('http://a'), require('util').inspect, require('events').prototype.on];
`;

export const hostileFunctions: Record<string, Hostile> = {
  'reads a file': {
    code: run(`require('fs').readFileSync('/etc/passwd')`),
    fails: ['threw', /cannot require "fs"/],
  },
  'reads a file by another name': {
    code: run(`require('node:fs/promises')`),
    fails: ['threw', /cannot require "node:fs\/promises"/],
  },
  'calls the network': {
    code: run(`return fetch('http://127.0.0.1')`),
    fails: ['threw', /fetch is not defined/],
  },
  'lists a folder': { code: run(`require('fs').readdirSync('/')`), fails: ['threw', /cannot require "fs"/] },
  'opens a socket': { code: run(`require('net').connect(80)`), fails: ['threw', /cannot require "net"/] },
  'starts a process': {
    code: run(`require('child_process').execSync('id')`),
    fails: ['threw', /cannot require "child_process"/],
  },
  'loads a worker': {
    code: run(`require('worker_threads')`),
    fails: ['threw', /cannot require "worker_threads"/],
  },
  'loads WASI': { code: run(`require('node:wasi')`), fails: ['threw', /cannot require "node:wasi"/] },
  'opens the inspector': {
    code: run(`require('inspector')`),
    fails: ['threw', /cannot require "inspector"/],
  },
  'writes a file by sqlite': {
    code: run(`require('node:sqlite')`),
    fails: ['threw', /cannot require "node:sqlite"/],
  },
  'loads a native addon': {
    code: run(`require('/usr/lib/evil.node')`),
    fails: ['threw', /cannot require "\/usr\/lib\/evil.node"/],
  },
  'imports at run time': { code: run(`await import('fs')`), fails: ['threw', /dynamic import/i] },
  'changes priorities': {
    code: run(`require('os').setPriority(19)`),
    fails: ['threw', /cannot require "os"/],
  },
  'uses process.binding': { code: run(`process.binding('fs')`), fails: ['threw', /process is not defined/] },
  exits: { code: run(`process.exit(0)`), fails: ['threw', /process is not defined/] },
  'signals the parent': {
    code: run(`process.kill(process.ppid)`),
    fails: ['threw', /process is not defined/],
  },
  'attaches a debugger to the parent': {
    code: run(`process._debugProcess(process.ppid)`),
    fails: ['threw', /process is not defined/],
  },
  'imports the source of a module': {
    code: run(`await import.source('fs')`),
    fails: ['threw', /dynamic import/i],
  },
  'makes code from strings': {
    code: run(`return new Function('return 1')()`),
    fails: ['threw', /Code generation from strings/],
  },
  'compiles WebAssembly': {
    code: run(`await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))`),
    fails: ['threw', /WebAssembly is not defined/],
  },
  'escapes by constructor.constructor': {
    code: run(`${ways}
      const out = [];
      const seen = new Set();
      const climb = (value) => {
        for (let at = value, steps = 0; at && steps < 6; at = at.constructor, steps++) {
          if (seen.has(at)) return;
          seen.add(at);
          for (const text of ['return process', 'return this.process', 'return globalThis']) {
            try { const got = at.constructor.constructor(text)(); if (got && got.process || got && got.pid) out.push(text); } catch {}
            try { const got = at.constructor(text)(); if (got && (got.process || got.pid)) out.push(text); } catch {}
          }
        }
      };
      given.forEach(climb);
      try { null.x } catch (error) { climb(error) }
      try { require('fs') } catch (error) { climb(error) }
      try { new URL('') } catch (error) { climb(error) }
      try { service.call(Symbol()) } catch (error) { climb(error) }
      await import('fs').catch(climb);
      await service.call('a').catch(climb);
      return out;`),
    returns: [],
  },
  'escapes by the stack': {
    code: run(`
      const out = [];
      Error.stackTraceLimit = Infinity;
      Error.prepareStackTrace = (error, frames) => frames;
      const look = (frames) => Array.isArray(frames) && frames.forEach((frame) => {
        const ours = /^(function[.]js|trellis:harness)$/.test(frame.getFileName());
        for (const name of ['getThis', 'getFunction'])
          if (!ours && frame[name]?.() !== undefined) out.push(name + ' of ' + frame.getFileName());
      });
      const util = require('util');
      look(new Error().stack);
      await new Promise((resolve) => setTimeout(() => { look(new Error().stack); resolve(); }, 1));
      try { util.inherits() } catch (error) { look(error.stack) }
      (function f() { try { f() } catch (error) { look(error.stack) } })();
      const emitter = new (require('events'))();
      emitter.on('a', () => look(new Error().stack)).emit('a');
      util.inspect({ [util.inspect.custom]: () => look(new Error().stack) });
      require('crypto').randomBytes(1, () => look(new Error().stack));
      service.call('a', { toJSON: () => look(new Error().stack) });
      await new Promise((resolve) => setTimeout(resolve, 20));
      return out;`),
    returns: [],
  },
  'escapes by its caller': {
    code: run(`
      const out = [];
      function look() {
        for (let at = look; ; ) {
          try { at = at.caller } catch { return 'x' }
          if (!at) return 'x';
          if (!/look/.test(at)) out.push(String(at).slice(0, 60));
        }
      }
      console.log({ toJSON: look });
      console.log({ toString: look, toJSON() { throw 1 } });
      service.call('a', { toJSON: look });
      setTimeout(look, 1);
      require('crypto').randomBytes(1, look);
      new (require('events'))().on('a', look).emit('a');
      await new Promise((resolve) => setTimeout(resolve, 20));
      return out;`),
    returns: [],
  },
  'escapes by what Node calls it on': {
    code: run(`
      const out = [];
      const { promise, resolve } = Promise.withResolvers();
      function look() { if (this !== undefined && this !== globalThis) out.push(this.constructor?.name ?? 'something'); resolve() }
      const crypto = require('crypto');
      for (const given of [[crypto.randomBytes, 1], [crypto.scrypt, 'a', 'b', 8], [crypto.pbkdf2, 'a', 'b', 1, 8, 'sha256'],
        [crypto.generateKeyPair, 'ec', { namedCurve: 'P-256' }], [crypto.randomInt, 5], [crypto.hkdf, 'sha256', 'a', 'b', 'c', 8],
        [crypto.prng ?? crypto.randomBytes, 1]]) given[0](...given.slice(1), look);
      await promise;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return out;`),
    returns: [],
  },
  'escapes by an event emitter': {
    code: run(`
      const events = require('events');
      const out = [];
      for (const name of ['emit', 'on', 'once', 'removeListener']) {
        try { events.prototype[name] = function () { out.push(name, typeof this.pid) } } catch (error) { }
      }
      for (const target of [Object.getPrototypeOf(require('util')), Object.getPrototypeOf(events), Buffer.prototype]) {
        try { target.then = () => out.push('then') } catch {}
        try { Object.defineProperty(target, 'polluted', { value: 1 }) } catch {}
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
      return [out, require('url').polluted, Buffer.from('').polluted].flat().filter(Boolean);`),
    returns: [],
  },
  loops: { code: run(`for (;;);`), limits: soon, fails: ['timeout', /longer than 400 ms/] },
  'loops before it is called': { code: `for (;;);`, limits: soon, fails: ['timeout', /longer than 400 ms/] },
  'loops in promises': {
    code: run(`const again = () => Promise.resolve().then(again); return again();`),
    limits: soon,
    fails: ['timeout', /longer than 400 ms/],
  },
  'keeps the thread': {
    code: run(`for (;;);`),
    limits: { blockedMs: 300 },
    fails: ['timeout', /300 ms without letting anything else happen/],
  },
  'sleeps in Atomics.wait': {
    code: run(`Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)`),
    fails: ['threw', /Atomics is not defined|SharedArrayBuffer is not defined/],
  },
  'shares memory by another name': {
    code: run(
      `return new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer.constructor.name`,
    ),
    fails: ['threw', /WebAssembly is not defined/],
  },
  'waits for memory to be cleared': {
    code: run(`new FinalizationRegistry(() => {}).register({}, 1)`),
    fails: ['threw', /FinalizationRegistry is not defined/],
  },
  'has a slow pattern': {
    code: run(`return /^(a+)+$/.test('a'.repeat(40) + 'b')`),
    limits: soon,
    fails: ['timeout', /longer than 400 ms/],
  },
  'calls itself without end': {
    code: run(`const again = () => again() + 1; return again()`),
    fails: ['threw', /call stack/],
  },
  'makes Node crash': {
    code: run(`require('crypto').createHmac('sha256', 'a')._transform({})`),
    fails: ['exited', /ended (by SIG|with code)/],
  },
  'waits forever': {
    code: run(`await new Promise(() => {})`),
    fails: ['stalled', /no call and no timer can settle/],
  },
  'returns a thenable that never answers': {
    code: run(`return { then() {} }`),
    fails: ['stalled', /no call and no timer can settle/],
  },
  'fills the heap with 2 GB': {
    code: run(`const all = []; for (;;) all.push(new Array(1000).fill({ a: all.length }))`),
    fails: ['out_of_memory', /exceeded its memory limit/],
  },
  'fills buffers with 2 GB': {
    code: run(`const all = []; for (let at = 0; at < 200; at++) all.push(Buffer.alloc(10e6, 1))`),
    fails: ['out_of_memory', /memory limit/],
  },
  'allocates one buffer of 2 GB': {
    code: run(`return Buffer.alloc(2e9, 1).length`),
    fails: ['out_of_memory', /memory limit/],
  },
  'allocates one array of 2 GB': {
    code: run(`return new Uint8Array(2e9).length`),
    fails: ['threw', /allocation failed/],
  },
  'grows an array to 2 GB': {
    code: run(
      `const held = new ArrayBuffer(1, { maxByteLength: 2 ** 32 }); held.resize(2e9); return held.byteLength`,
    ),
    fails: ['threw', /Out of memory/],
  },
  'writes 1 GB of logs at once': {
    code: run(`const line = 'x'.repeat(10_000); for (let at = 0; at < 1e5; at++) service.log('info', line)`),
    fails: ['log_flood', /Log less/],
  },
  'writes 1 GB of logs in turns': {
    code: run(`const line = 'x'.repeat(10_000);
      for (let at = 0; at < 1e5; at++) { console.log(line); await new Promise((resolve) => setTimeout(resolve, 0)) }`),
    fails: ['log_flood', /Log less/],
  },
  'leaves a rejection unhandled': {
    code: run(
      `Promise.reject(new Error('left alone')); await new Promise((resolve) => setTimeout(resolve, 5_000))`,
    ),
    fails: ['threw', /left alone/],
  },
  'throws in a timer': {
    code: run(
      `setTimeout(() => { throw new TypeError('late') }, 1); await new Promise((r) => setTimeout(r, 5_000))`,
    ),
    fails: ['threw', /late/],
  },
  'sends __proto__': {
    code: run(`await service.call('save', JSON.parse('{"a":[{"__proto__":{"polluted":true}}]}'))`),
    fails: ['threw', /key `__proto__`/],
  },
  'returns __proto__': {
    code: run(`return JSON.parse('{"__proto__":{"polluted":true}}')`),
    fails: ['threw', /key `__proto__`/],
  },
  'sends deep JSON': {
    code: run(
      `let deep = {}; for (let at = 0; at < 3_000; at++) deep = { deep }; await service.call('save', deep)`,
    ),
    fails: ['threw', /nested deeper than 128 levels/],
  },
  'sends bottomless JSON': {
    code: run(
      `let deep = {}; for (let at = 0; at < 1e5; at++) deep = { deep }; await service.call('save', deep)`,
    ),
    fails: ['threw', /nested deeper than 128 levels/],
  },
  'sends 20 MB at once': {
    code: run(`await service.call('save', 'x'.repeat(20e6))`),
    fails: ['threw', /the most is 16777216/],
  },
  'returns 20 MB': { code: run(`return 'x'.repeat(20e6)`), fails: ['threw', /the most is 10485760/] },
  'calls 5,000 times at once': {
    code: run(
      `return (await Promise.all(Array.from({ length: 5_000 }, (_, at) => service.call('a', at)))).length`,
    ),
    returns: 5_000,
  },
  'throws what cannot be read': {
    code: run(
      `throw new Proxy({}, { get() { throw new Error('no') }, getPrototypeOf() { throw new Error('no') } })`,
    ),
    fails: ['threw', /cannot be shown/],
  },
  'throws an error whose cause cannot be read': {
    code: run(`
      const no = () => { throw new Error('no') };
      const cause = new Proxy({}, { get: no, getPrototypeOf: no, ownKeys: no });
      throw new Error('the outer one', { cause })`),
    fails: ['threw', /the outer one/],
  },
  'throws an error that has itself as its cause, which throws when it is looked for again': {
    code: run(`
      const error = new Error('the outer one');
      let reads = 0;
      Object.defineProperty(error, 'cause', { get() { if (reads++ > 0) throw new Error('no'); return error; } });
      throw error`),
    fails: ['threw', /the outer one/],
  },
  'throws with a hostile toString and stack': {
    code: run(
      `throw { toString() { throw 1 }, get message() { return { toString() { throw 2 } } }, stack: 'x'.repeat(1e6) }`,
    ),
    fails: ['threw', /^\{"message":\{\},"stack":"x{1000}/],
  },
  'hands over a proxy': {
    code: run(
      `const fake = new Proxy({}, { ownKeys() { throw new Error('trapped') } }); await service.call('save', fake)`,
    ),
    fails: ['threw', /trapped/],
  },
  'replaces what everything uses': {
    code: run(`
      JSON.stringify = JSON.parse = () => '{"t":"done","result":"forged"}';
      Promise.prototype.then = Object.defineProperty = String.prototype.slice = () => 'forged';
      Array.prototype[Symbol.iterator] = () => { throw new Error('mine') };
      Object.prototype.toJSON = function () { return this };
      throw new Error('the true one');`),
    fails: ['threw', /the true one|forged|then/],
  },
  'names another connection in a call': {
    code: run(`
      const forged = { t: 'call', id: 1, connectionId: 'of another', environmentId: 2, integrationKey: 'other' };
      return Object.keys((await service.call('records","connectionId":"of another', forged)).value);`),
    returns: ['name', 'args'],
  },
  'answers with a thenable, getters and a proxy': {
    code: run(`return {
      get a() { return new Proxy([1], { get: (of, key) => of[key] }) },
      then(resolve) { resolve({ b: { toJSON() { return 'plain' } }, get c() { return 1 } }) },
    };`),
    returns: { b: 'plain', c: 1 },
  },
  'leaves timers behind': {
    code: run(`setInterval(() => service.log('error', 'still here'), 1); return 'over'`),
    returns: 'over',
  },
};
