import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';

type Visitor = ReturnType<ConnectBench['browser']>;
const shape = '[0-9a-f]{16}=[\\w-]{43}; Max-Age=3600; Path=/; HttpOnly';
const refusal = ({ status, text }: { status: number; text: string }) => {
  assert.equal(status, 400, text);
  return /&#34;errorType&#34;:&#34;([a-z_]+)/.exec(text)?.[1];
};

/** The rules hold at both kinds of address; what a stranger can put into a browser differs. */
function bothWays(open: () => ConnectBench) {
  let owner: Visitor;
  let stranger: Visitor;
  beforeEach(() => {
    owner = open().browser();
    stranger = open().browser();
  });
  const begin = async (visitor: Visitor) => visitor.begin(await open().session());
  const secretsOf = ({ secrets }: Visitor) => new Set(secrets);

  test('each session has a secret of its own, which it keeps', async () => {
    const token = await open().session();
    const callbacks = [await open().consent(await owner.begin(token))];
    const [first] = owner.secrets;
    await begin(owner);
    callbacks.push(await open().consent(await owner.begin(token)));
    assert.equal(owner.secrets.length, 2);
    assert.equal(owner.secrets[0], first);
    assert.equal((await owner.visit(callbacks[1]!)).status, 200);
    assert.equal(refusal(await owner.visit(callbacks[0]!)), 'unknown_connect_session_token');
  });

  test('a session that begins takes no secret over that the browser had before', async () => {
    await begin(stranger);
    const { baseUrl } = open();
    const planted = stranger.jar.shownAt(baseUrl);
    // As by somebody who had the browser in his hands.
    const { protocol } = new URL(baseUrl);
    const secure = protocol === 'https:' ? '; Secure' : '';
    owner.jar.receive(
      baseUrl,
      planted.map(({ name, value }) => `${name}=${value}; Path=/${secure}`),
    );
    assert.deepEqual(owner.secrets, stranger.secrets);
    const callback = await open().consent(await begin(owner));
    assert.equal(secretsOf(owner).difference(secretsOf(stranger)).size, 1);
    assert.equal(refusal(await stranger.visit(callback)), 'state_cookie_err');
  });

  test('of many sessions that a browser has begun it keeps the last twenty', async () => {
    const callbacks: string[] = [];
    for (let count = 0; count < 23; count += 1) {
      callbacks.push(await open().consent(await begin(owner)));
      assert.equal(owner.secrets.length, Math.min(count + 1, 20));
    }
    for (const callback of [callbacks.at(-1)!, callbacks.at(-20)!])
      assert.equal((await owner.visit(callback)).status, 200);
    assert.equal(refusal(await owner.visit(callbacks.at(-21)!)), 'state_cookie_err');
  });

  test('cookies of other names and shapes are left alone', async () => {
    const { baseUrl } = open();
    const names = ['trellis_connect_', 'trellis_connect_0123456789abcdeF', 'trellis_connect', 'other'];
    owner.jar.receive(
      baseUrl,
      names.map((name) => `${name}=x; Path=/`),
    );
    for (let count = 0; count < 21; count += 1) await begin(owner);
    assert.equal(owner.secrets.filter((value) => value === 'x').length, names.length);
    assert.equal(owner.secrets.length, names.length + 20);
  });
}

describe('at an https address', () => {
  let bench: ConnectBench;
  before(async () => {
    bench = await openConnectBench({ publicUrl: 'https://trellis.example.com/base' });
  });
  after(() => bench.end());
  bothWays(() => bench);

  test('a cookie belongs to the host alone', async () => {
    const token = await bench.session();
    const { headers } = await bench.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
    assert.match(
      headers.get('set-cookie') ?? '',
      new RegExp(`^__Host-trellis_connect_${shape}; Secure; SameSite=Lax$`),
    );
  });

  test('an address that a stranger has begun is not ended in a browser that he put his cookies into', async () => {
    const before = (await bench.connections()).length;
    const [stranger, owner] = [bench.browser(), bench.browser()];
    const address = await stranger.begin(await bench.session());
    const [cookie] = stranger.jar.shownAt(bench.baseUrl);
    assert.ok(cookie);
    const plain = cookie.name.replace('__Host-', '');
    const places = ['Domain=example.com; Path=/; Secure', 'Domain=example.com; Path=/base/oauth; Secure'];
    for (const name of [cookie.name, `__Secure-${plain}`, plain, '__Secure-trellis_connect']) {
      for (const place of [...places, 'Path=/; Secure'])
        owner.jar.receive('https://evil.example.com', [`${name}=${cookie.value}; ${place}`]);
      owner.jar.receive('http://trellis.example.com', [`${name}=${cookie.value}; Path=/`]);
    }
    assert.ok(owner.secrets.includes(cookie.value), 'some came through');
    assert.equal(refusal(await owner.visit(await bench.consent(address))), 'state_cookie_err');
    assert.equal((await bench.connections()).length, before);
  });
});

describe('at a plain address', () => {
  let bench: ConnectBench;
  before(async () => {
    bench = await openConnectBench();
  });
  after(() => bench.end());
  bothWays(() => bench);

  test('a cookie has the plain name', async () => {
    const token = await bench.session();
    const { headers } = await bench.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
    assert.match(headers.get('set-cookie') ?? '', new RegExp(`^trellis_connect_${shape}; SameSite=Lax$`));
  });
});
