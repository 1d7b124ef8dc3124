/**
 * Code of a function that goes wherever the objects it is given lead: modules, classes, what these make and throw, and all
 * that hangs on them, private symbols included. `everything()` answers them with the path to each.
 */
export const explorer = `
  const names = ['buffer', 'crypto', 'events', 'stream', 'url', 'util'];
  const modules = Object.fromEntries(names.map((name) => [name, require(name)]));
  const { buffer, crypto, events, stream, url, util } = modules;
  const one = () => new stream.PassThrough({ encoding: 'utf8' });
  const tried = (make) => { try { return make() } catch (error) { return error } };
  const quiet = (it) => { if (it && it.on) it.on('error', () => {}); return it };

  /** What classes make that no module exports, and errors of what is given wrong. */
  const made = (service) => {
    const list = [];
    const add = (make) => { const it = quiet(tried(make)); list.push(it); if (it && it.catch) it.catch(() => {}) };
    const args = [[], [5], ['a'], [{}], [null], [[1]], ['sha256'], ['sha256', 'key'], [Buffer.from('abc')], [() => {}],
      ['text/plain;a=b'], ['http://a/b?c=1'], ['file://a/%2f'], ['aes-256-gcm', Buffer.alloc(32), Buffer.alloc(12)],
      ['prime256v1'], ['ec', { namedCurve: 'P-256' }], ['a=b'], [new events.EventEmitter(), 'x'], [one()], [one(), one()],
      [new AbortController().signal], [[new AbortController().signal, new AbortController().signal]]];
    const skipped = /^(generatePrime|generatePrimeSync|checkPrime|createDiffieHellman|DiffieHellman|argon2|scrypt|destroy)/;
    for (const of of Object.values(modules)) {
      for (const name of Reflect.ownKeys(of)) {
        const found = tried(() => of[name]);
        if (typeof found !== 'function' || skipped.test(String(name))) continue;
        for (const given of args) {
          add(() => found(...given));
          if (/^[A-Z]/.test(String(name))) add(() => new found(...given));
        }
      }
    }
    const target = new EventTarget();
    target.addEventListener('a', () => {});
    const key = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const finished = crypto.createHash('sha256');
    finished.digest();
    const written = one();
    written.cork();
    written.write('a');
    const piped = one();
    piped.pipe(one());
    const ended = quiet(one());
    ended.end().write('a');
    list.push(key, target, written, piped, ended, service.signal, [1].values().map(String), Buffer.from('a').keys().map(String),
      new Blob(['a']), AbortSignal.any([service.signal]), events.on(new events.EventEmitter(), 'a'), stream.duplexPair());
    for (const name of ['iterator', 'map', 'filter', 'flatMap', 'take', 'drop', 'compose', 'read', 'pause'])
      for (const given of args) add(() => one()[name](...given));
    for (const of of [Buffer.alloc(4), new URLSearchParams('a=b'), new util.MIMEType('a/b').params, finished, cipherOf(), target,
      crypto.createSecretKey(Buffer.alloc(16)), crypto.createECDH('prime256v1'), new TextDecoder(), new URL('http://a')]) {
      for (let at = of, depth = 0; at !== null && depth < 3; at = Object.getPrototypeOf(at), depth++)
        for (const name of Reflect.ownKeys(at)) {
          const method = tried(() => of[name]);
          if (typeof method !== 'function' || name === 'constructor' || /^_/.test(String(name))) continue;
          for (const given of args.slice(0, 6)) add(() => method.apply(of, given));
        }
    }
    crypto.randomBytes(4, function () { list.push(this) });
    crypto.prng?.(4, function () { list.push(this) });
    crypto.pbkdf2('a', 'b', 1, 8, 'sha256', function () { list.push(this) });
    return list;
  };
  const cipherOf = () => crypto.createCipheriv('aes-256-gcm', Buffer.alloc(32), Buffer.alloc(12));

  const everything = async (service) => {
    const found = new Map();
    const list = made(service);
    await new Promise((resolve) => setTimeout(resolve, 30));
    const open = [['module', modules], ['global', [Buffer, URL, URLSearchParams, AbortController, AbortSignal, Blob, Event,
      EventTarget, TextDecoder, TextEncoder, DOMException, atob, btoa]], ['made', list]];
    while (open.length > 0) {
      const [path, value] = open.pop();
      if (value === null || (typeof value !== 'object' && typeof value !== 'function') || found.has(value)) continue;
      found.set(value, path);
      open.push([path + '.__proto__', tried(() => Object.getPrototypeOf(value))]);
      if (value instanceof Map || value instanceof Set) for (const pair of value.entries()) open.push([path + '[]', pair[0]], [path + '[]', pair[1]]);
      for (const key of Reflect.ownKeys(value)) {
        if (ArrayBuffer.isView(value) && typeof key === 'string' && /^[0-9]+$/.test(key)) continue;
        const property = Object.getOwnPropertyDescriptor(value, key);
        if (!property) continue;
        const name = path + '.' + String(key);
        if (property.get) open.push([name, tried(() => value[key])]);
        open.push([name + '<get>', property.get], [name + '<set>', property.set], [name, property.value]);
      }
    }
    return found;
  };
`;
