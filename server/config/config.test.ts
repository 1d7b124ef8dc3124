import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ConfigError, loadConfig, readCommandSecrets } from './config.ts';
import { isLoopback } from './setting-values.ts';

const key = (id: string) => `${id}:${randomBytes(32).toString('base64')}`;
const faultsOf = (env: Record<string, string>): string[] => {
  try {
    loadConfig(env, false);
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.faults;
  }
};

test('an empty environment gives the defaults, with the sandbox on', () => {
  const config = loadConfig({}, false);
  assert.equal(config.host, '127.0.0.1');
  assert.equal(config.port, 3003);
  assert.equal(config.baseUrl, 'http://localhost:3003');
  assert.equal(config.databaseUrl, undefined);
  assert.equal(config.brand.word, 'trellis');
  assert.deepEqual(config.sandbox, { port: 3004, url: 'http://localhost:3004', controlKey: undefined });
  assert.equal(config.logFormat, 'json');
  assert.equal(config.drainMs, 10_000);
});

test('one message lists all faults', () => {
  const faults = faultsOf({
    PORT: '70000',
    BASE_URL: 'ftp://x',
    TRELLIS_BRAND: 'Nope!',
    LOG_LEVEL: 'loud',
    TRELLIS_DRAIN_SECONDS: '1.5s',
    TRELLIS_OUTBOUND_ALLOW: '10.0.0',
    DATABASE_URL: 'postgres://localhost/x',
  });
  for (const name of [
    'PORT',
    'BASE_URL',
    'TRELLIS_BRAND',
    'LOG_LEVEL',
    'TRELLIS_DRAIN_SECONDS',
    'TRELLIS_OUTBOUND_ALLOW',
    'TRELLIS_ENCRYPTION_KEYS',
  ]) {
    assert.ok(
      faults.some((fault) => fault.startsWith(name)),
      `${name} in ${faults.join(' | ')}`,
    );
  }
});

test('the number of processes is that of the cores with auto, and its limits are those of the machine', () => {
  for (const count of ['0', '-1', '1.5', 'x', '257', '1000', '01'])
    assert.deepEqual(faultsOf({ TRELLIS_PROCESSES: count }), [
      `TRELLIS_PROCESSES must be auto or a number from 1 to 256, it is "${count}"`,
    ]);
  assert.equal(loadConfig({}, false).processes, 1);
  assert.equal(loadConfig({ TRELLIS_PROCESSES: 'auto' }, false).processes, availableParallelism());
  const settings = { TRELLIS_MAX_CONNECTIONS: '1000', TRELLIS_BODY_MEMORY_MB: '300' };
  const limitsOf = (count: string) => loadConfig({ ...settings, TRELLIS_PROCESSES: count }, false).limits;
  const mb = 1024 * 1024;
  assert.partialDeepStrictEqual(limitsOf('1'), { maxConnections: 1000, bodyBytes: 300 * mb });
  assert.partialDeepStrictEqual(limitsOf('3'), { maxConnections: 334, bodyBytes: 100 * mb });
  // A process can hold the largest body.
  assert.equal(limitsOf('100').bodyBytes, 32 * mb);
});

test('a number of days has no leading zero and is within its range', () => {
  const names = ['TRELLIS_ACTIVITY_DAYS', 'TRELLIS_EVENT_DAYS', 'TRELLIS_DELIVERY_DAYS'];
  for (const days of ['0', '007', '1000', '-7', '7.5', 'week'])
    for (const name of names)
      assert.deepEqual(
        faultsOf({ [name]: days }).map((fault) => fault.split(' ', 1)[0]),
        [name],
        days,
      );
  for (const name of names) assert.deepEqual(faultsOf({ [name]: '7' }), []);
  assert.equal(faultsOf({ TRELLIS_EVENT_DAYS: '6' }).length, 1);
});

test('the owner in the settings has a valid address, and an issuer over plain HTTP is not trusted', () => {
  const admin = (email: string) =>
    faultsOf({ TRELLIS_ADMIN_EMAIL: email, TRELLIS_ADMIN_PASSWORD: 'correct horse battery' });
  assert.deepEqual(admin('ada@example.com'), []);
  for (const email of ['admin@localhost', 'ada', 'a b@example.com'])
    assert.match(admin(email)[0] ?? '', /TRELLIS_ADMIN_EMAIL must be an e-mail address/, email);
  const issuer = (url: string) =>
    faultsOf({
      TRELLIS_OIDC_ISSUER: url,
      TRELLIS_OIDC_CLIENT_ID: 'a',
      TRELLIS_OIDC_CLIENT_SECRET: 'b',
    });
  for (const url of ['https://login.example.com', 'http://127.0.0.1:5556/dex', 'http://localhost:5556'])
    assert.deepEqual(issuer(url), [], url);
  assert.match(issuer('http://login.internal')[0] ?? '', /TRELLIS_OIDC_ISSUER must be an https/);
});

test('a faulty encryption key is refused without repeating it', () => {
  const short = randomBytes(31).toString('base64');
  const faults = faultsOf({ TRELLIS_ENCRYPTION_KEYS: `a:${short},${key('b')},${key('b')},bad` });
  assert.equal(faults.length, 3);
  assert.ok(faults.every((fault) => !fault.includes(short)));
});

test('an encryption key in place of its ID is not printed', () => {
  const swapped = randomBytes(32);
  for (const encoding of ['base64', 'base64url', 'hex'] as const) {
    const text = swapped.toString(encoding);
    const faults = faultsOf({ TRELLIS_ENCRYPTION_KEYS: `${text}:k1` });
    assert.ok(faults.length > 0 && !faults.join().includes(text.slice(0, 20)), faults.join());
  }
});

function fileOf(t: TestContext, text: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'setting-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'secret');
  writeFileSync(path, text);
  return path;
}

/** Each secret setting, with a value, the settings that it requires, and the value in the configuration. */
const secrets: [string, string, Record<string, string>, (env: Record<string, string>) => unknown][] = [
  [
    'DATABASE_URL',
    'postgres://u:p@db/x',
    { TRELLIS_ENCRYPTION_KEYS: key('a') },
    (env) => loadConfig(env, false).databaseUrl,
  ],
  [
    'TRELLIS_ENCRYPTION_KEYS',
    key('a'),
    {},
    (env) =>
      loadConfig(env, false).encryptionKeys?.map((one) => `${one.id}:${one.key.export().toString('base64')}`),
  ],
  [
    'TRELLIS_RECORDS_DATABASE_URLS',
    'postgres://u:p@worker/x',
    {
      TRELLIS_RECORDS_DIRECT: 'on',
      DATABASE_URL: 'postgres://u:p@db/x',
      TRELLIS_ENCRYPTION_KEYS: key('a'),
    },
    (env) => loadConfig(env, false).records?.urls?.[0],
  ],
  ['TRELLIS_SECRET_KEY', 'k'.repeat(20), {}, (env) => loadConfig(env, false).secretKey],
  ['SANDBOX_KEY', 'a-control-key', {}, (env) => loadConfig(env, false).sandbox?.controlKey],
  [
    'SMTP_URL',
    'smtp://u:p@mail.example.com',
    { SMTP_FROM: 'a@example.com' },
    (env) => loadConfig(env, false).smtp?.url,
  ],
  [
    'TRELLIS_ADMIN_PASSWORD',
    ' with spaces at both ends ',
    { TRELLIS_ADMIN_EMAIL: 'ada@example.com' },
    (env) => loadConfig(env, false).signIn.admin?.password,
  ],
  [
    'TRELLIS_OIDC_CLIENT_SECRET',
    'client secret',
    { TRELLIS_OIDC_ISSUER: 'https://login.example.com', TRELLIS_OIDC_CLIENT_ID: 'a' },
    (env) => loadConfig(env, false).signIn.oidc?.clientSecret,
  ],
  ['TRELLIS_METRICS_TOKEN', 'metrics-token-of-a-node', {}, (env) => loadConfig(env, false).metricsToken],
  [
    'OTEL_EXPORTER_OTLP_HEADERS',
    'authorization=abc',
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' },
    (env) => loadConfig(env, false).tracing?.headers.authorization,
  ],
  ['TRELLIS_PEER_KEY', 'key-of-the-peer', {}, (env) => readCommandSecrets(env).peerKey],
  ['TRELLIS_EXPORT_PASSPHRASE', ' a passphrase', {}, (env) => readCommandSecrets(env).passphrase],
];
for (const [name, value, others, read] of secrets) {
  test(`${name} may stand in a file, and not in both places`, (t) => {
    const faultsWith = (env: Record<string, string>) => {
      try {
        read({ ...others, ...env });
        return [];
      } catch (error) {
        assert.ok(error instanceof ConfigError);
        return error.faults;
      }
    };
    for (const text of [value, `${value}\n`, `${value}\r\n`]) {
      const found = read({ ...others, [`${name}_FILE`]: fileOf(t, text) });
      assert.equal([found].flat().join(), name === 'OTEL_EXPORTER_OTLP_HEADERS' ? 'abc' : value);
    }
    const path = fileOf(t, value);
    assert.deepEqual(
      faultsWith({ [name]: value, [`${name}_FILE`]: path }).map((fault) => fault.replace(/:.*/, '')),
      [`${name} and ${name}_FILE must not both be set`],
    );
    for (const [wrong, reason] of [
      [`${path}.absent`, 'cannot be read (ENOENT)'],
      [tmpdir(), 'cannot be read (EISDIR)'],
      [fileOf(t, '\n'), 'is empty'],
    ] as const) {
      const [fault = ''] = faultsWith({ [`${name}_FILE`]: wrong });
      assert.equal(fault, `${name}_FILE: the file ${wrong} ${reason}`);
    }
  });
}

test('a file with wrong master keys is one fault, and no fault repeats what a file holds', (t) => {
  const faults = faultsOf({
    DATABASE_URL: 'postgres://localhost/x',
    TRELLIS_ENCRYPTION_KEYS_FILE: fileOf(t, 'swapped-and-secret'),
    TRELLIS_METRICS_TOKEN_FILE: fileOf(t, 'not a token'),
  });
  assert.equal(faults.length, 2, faults.join());
  assert.doesNotMatch(faults.join(), /swapped-and-secret|not a token/);
});

test('direct connections to workers require a coordinator, and addresses of workers require them', () => {
  const database = { DATABASE_URL: 'postgres://u:p@db/x', TRELLIS_ENCRYPTION_KEYS: key('a') };
  assert.match(faultsOf({ TRELLIS_RECORDS_DIRECT: 'on' }).join(), /DIRECT=on requires DATABASE_URL/);
  const urls = { TRELLIS_RECORDS_DATABASE_URLS: 'postgres://u:secret@w1/x, http://w2' };
  assert.match(faultsOf({ ...database, ...urls }).join(), /URLS requires TRELLIS_RECORDS_DIRECT=on/);
  const [fault = ''] = faultsOf({ ...database, ...urls, TRELLIS_RECORDS_DIRECT: 'on' });
  assert.match(fault, /must begin with postgres/);
  assert.doesNotMatch(fault, /secret/);
  assert.equal(loadConfig(database, false).records, undefined);
});

test('the first encryption key is the one that seals', () => {
  const config = loadConfig({ TRELLIS_ENCRYPTION_KEYS: `${key('new')},${key('old')}` }, false);
  assert.deepEqual(
    config.encryptionKeys?.map(({ id }) => id),
    ['new', 'old'],
  );
});

test('the sandbox is off where it could be reached from outside, unless a control key guards it', () => {
  for (const env of [
    { HOST: '0.0.0.0' },
    { BASE_URL: 'https://trellis.example.com' },
    { NODE_ENV: 'production' },
  ]) {
    assert.equal(loadConfig(env, false).sandbox, undefined);
    assert.match(faultsOf({ ...env, TRELLIS_SANDBOX: 'on' }).join(), /SANDBOX_KEY/);
    const guarded = loadConfig({ ...env, TRELLIS_SANDBOX: 'on', SANDBOX_KEY: 'a-control-key' }, false);
    assert.equal(guarded.sandbox?.controlKey, 'a-control-key');
  }
  assert.equal(loadConfig({ TRELLIS_SANDBOX: 'off' }, false).sandbox, undefined);
});

test('only a service that this machine alone reaches delivers events to this machine by default', () => {
  const ranges = (env: Record<string, string>) =>
    loadConfig({ ...env, SANDBOX_KEY: 'a-control-key' }, false).outboundAllow.map(
      ({ addresses, purpose }) => `${purpose} ${addresses.rules}`,
    );
  assert.deepEqual(ranges({}), ['endpoints Subnet: IPv4 127.0.0.1/32', 'endpoints Subnet: IPv6 ::1/128']);
  for (const env of [
    { HOST: '0.0.0.0' },
    { BASE_URL: 'https://trellis.example.com' },
    { NODE_ENV: 'production' },
  ] as Record<string, string>[])
    assert.deepEqual(ranges(env), [], JSON.stringify(env));
  assert.deepEqual(ranges({ TRELLIS_OUTBOUND_ALLOW: '10.0.0.1' }), ['undefined Subnet: IPv4 10.0.0.1/32']);
});

test('only the named ranges are allowed', () => {
  const { outboundAllow } = loadConfig({ TRELLIS_OUTBOUND_ALLOW: '10.1.0.0/16, fd00::/8' }, false);
  assert.deepEqual(
    outboundAllow.map(({ addresses, port, purpose }) => [addresses.rules, port, purpose]),
    [
      [['Subnet: IPv4 10.1.0.0/16'], undefined, undefined],
      [['Subnet: IPv6 fd00::/8'], undefined, undefined],
    ],
  );
});

test('an allowed range may name a port and a purpose, and the error for an invalid one has the allowed values', () => {
  for (const [entry, rule, port, purpose] of [
    ['127.0.0.1:9000', 'Subnet: IPv4 127.0.0.1/32', 9000, undefined],
    ['[::1]:9000', 'Subnet: IPv6 ::1/128', 9000, undefined],
    ['10.0.0.0/8:5432', 'Subnet: IPv4 10.0.0.0/8', 5432, undefined],
    ['[fd00::/8]:443', 'Subnet: IPv6 fd00::/8', 443, undefined],
    ['providers=10.1.2.3', 'Subnet: IPv4 10.1.2.3/32', undefined, 'providers'],
    ['endpoints=127.0.0.1:9000', 'Subnet: IPv4 127.0.0.1/32', 9000, 'endpoints'],
    ['sign-in=::1', 'Subnet: IPv6 ::1/128', undefined, 'sign-in'],
  ] as const) {
    const [read] = loadConfig({ TRELLIS_OUTBOUND_ALLOW: entry }, false).outboundAllow;
    assert.deepEqual([read?.addresses.rules, read?.port, read?.purpose], [[rule], port, purpose], entry);
  }
  for (const bad of [
    '10.0.0.0/33',
    '10.0.0.0/8/8',
    '10.0.0.0:0',
    '10.0.0.0:65536',
    '10.0.0.0:',
    '10.0.0',
    '010.0.0.1',
    '::1:9000/8:1',
    '[10.0.0.1]:1',
    '[::1',
    '::1]',
    '[::1]:',
    '[::1]/128:1',
    'fd00::/129',
    'fe80::1%eth0',
    '::ffff:1.2.3',
    'other=10.0.0.1',
    '=10.0.0.1',
    'providers=',
    'providers',
    'Providers=10.0.0.1',
    'providers=endpoints=10.0.0.1',
    'localhost:9000',
    'http://127.0.0.1:9000',
    '10.0.0.1 :1',
    '*',
    '10.0.0.1,',
    '10.0.0.1\n:9000',
  ]) {
    const [fault = '', ...more] = faultsOf({ TRELLIS_OUTBOUND_ALLOW: `127.0.0.1,${bad}` });
    assert.deepEqual(more, [], bad);
    assert.ok(fault.startsWith('TRELLIS_OUTBOUND_ALLOW: "'), bad);
    assert.ok(fault.includes('endpoints=') && fault.includes('127.0.0.1:9000'), fault);
  }
});

test('origins that may frame the connect page are origins and nothing else', () => {
  const TRELLIS_CONNECT_FRAME_ANCESTORS =
    'https://app.example.com, https://*.example.org http://localhost:5173';
  assert.deepEqual(loadConfig({ TRELLIS_CONNECT_FRAME_ANCESTORS }, false).connectFrameAncestors, [
    'https://app.example.com',
    'https://*.example.org',
    'http://localhost:5173',
  ]);
  assert.deepEqual(loadConfig({}, false).connectFrameAncestors, []);
  for (const bad of [
    '*',
    'app.example.com',
    'https://app.example.com/',
    "'self'; script-src *",
    'https://a;b',
  ])
    assert.match(faultsOf({ TRELLIS_CONNECT_FRAME_ANCESTORS: bad }).join(), /is not an origin/, bad);
});

test('loopback is distinguished from names that only look like it', () => {
  for (const host of ['localhost', '127.0.0.1', '127.9.9.9', '::1', '[::1]'])
    assert.ok(isLoopback(host), host);
  for (const host of ['localhost.example.com', '127.0.0.1.nip.io', '0.0.0.0', '', '10.0.0.1']) {
    assert.ok(!isLoopback(host), host);
  }
});

test('limits have defaults, are turned off by name, and refuse invalid values', () => {
  const { limits } = loadConfig({}, false);
  const { maxConnections, ...others } = limits;
  assert.deepEqual(others, {
    perKey: undefined,
    perPerson: 3_000,
    perAddress: 600,
    overloadDelayMs: 100,
    bodyBytes: 256 * 1024 * 1024,
  });
  assert.ok(maxConnections >= 100 && maxConnections <= 50_000);
  const names = [
    'RATE_LIMIT',
    'PERSON_RATE_LIMIT',
    'ADDRESS_RATE_LIMIT',
    'BODY_MEMORY_MB',
    'OVERLOAD_DELAY_MS',
  ];
  const off = Object.fromEntries(names.map((name) => [`TRELLIS_${name}`, 'off']));
  const given = loadConfig({ ...off, TRELLIS_MAX_CONNECTIONS: '12' }, false).limits;
  assert.deepEqual(
    Object.values(given).filter((limit) => limit !== undefined),
    [12],
  );
  for (const name of [...names, 'MAX_CONNECTIONS']) {
    for (const wrong of ['0', '-1', '1.5', 'many', '10000000'])
      assert.equal(faultsOf({ [`TRELLIS_${name}`]: wrong }).length, 1, `${name}=${wrong}`);
  }
  assert.equal(faultsOf({ TRELLIS_MAX_CONNECTIONS: 'off' }).length, 1);
});
