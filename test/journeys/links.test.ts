import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { openCookieJar } from '../support/cookie-jar.ts';
import { type Answer, openTrellis, type TestTrellis, visit } from '../support/trellis.ts';

/**
 * Addresses of the OAuth flow in the wrong hands: a link, the provider's page, the callback. The browser that begins owns
 * the session. A callback in another browser, or with an unexpected state or issuer, saves nothing and uses no code.
 */
const key = 'google-sheet';
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
  await trellis.call('POST', '/integrations/quickstart', { body: { provider: key, unique_key: key } });
});
after(() => trellis.close());

type Page = Pick<Answer, 'status' | 'text'> & { location: string };
type Link = { token: string; connect_link: string };
type Visitor = ReturnType<typeof openVisitor>;

/** A browser's cookies, without a browser. */
function openVisitor() {
  const jar = openCookieJar();
  return {
    jar,
    async visit(url: string): Promise<Page> {
      const answer = await visit(trellis, url, jar.headerFor(url));
      jar.receive(url, answer.headers.getSetCookie());
      return {
        status: answer.status,
        text: answer.text,
        location: answer.headers.get('location') ?? '',
      };
    },
    begin(link: Link): Promise<Page> {
      return this.visit(`${trellis.baseUrl}/oauth/connect/${key}?connect_session_token=${link.token}`);
    },
  };
}

const newLink = async (more: Record<string, unknown> = {}): Promise<Link> => {
  const { status, body, text } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'u1' }, allowed_integrations: [key], ...more },
  });
  assert.equal(status, 201, text);
  return body.data as Link;
};
/** What the page of a link asks for. */
const looked = async ({ token }: Link) => {
  const { body, status, text } = await trellis.call('GET', '/connect/session/choices', { key: token });
  assert.equal(status, 200, text);
  return body.data as { end_user: { name: string; email: string }; choices: { account: unknown }[] };
};
/** Goes through the provider's pages as any holder of their address; returns the address of the callback. */
const consent = async (authorizationUrl: string, account = 'ada@example.com') =>
  String((await trellis.control('POST', 'authorize', { url: authorizationUrl, account })).redirect);
const begun = async (visitor: Visitor, link: Link) => {
  const { status, location, text } = await visitor.begin(link);
  assert.equal(status, 302, text);
  return location;
};
/** What the callback page tells the program that opened it. */
const refusal = ({ status, text }: Page) => {
  assert.equal(status, 400, text);
  return /&#34;errorType&#34;:&#34;([a-z_]+)/.exec(text)?.[1];
};
const changed = (url: string, change: (params: URLSearchParams) => void) => {
  const address = new URL(url);
  change(address.searchParams);
  return address.href;
};
const twenty = <T>(make: (index: number) => Promise<T>) =>
  Promise.all(Array.from({ length: 20 }, (_, index) => make(index)));
const exchanges = async () => Number((await trellis.control('GET', 'calls'))['POST /token'] ?? 0);
const saved = async () => {
  const { body } = await trellis.call('GET', '/connections');
  return (body.connections as { connection_id: string }[]).length;
};

let owner: Visitor;
let stranger: Visitor;
beforeEach(async () => {
  [owner, stranger] = [openVisitor(), openVisitor()];
  // A stranger of some standing: it has a cookie of the service.
  await begun(stranger, await newLink());
});

describe('nothing is saved', () => {
  let connectionsBefore: number;
  let exchangesBefore: number;
  let eventsBefore: number;
  const countEvents = async () =>
    (
      await trellis.db.query(
        "select from event where type in ('connection.created', 'connection.reconnected')",
      )
    ).length;
  beforeEach(async () => {
    [connectionsBefore, exchangesBefore, eventsBefore] = [
      await saved(),
      await exchanges(),
      await countEvents(),
    ];
  });
  /** Only the test of `require_same_account` has to see the account before it can refuse it. */
  let mayExchange: boolean;
  beforeEach(() => {
    mayExchange = false;
  });
  afterEach(async () => {
    assert.equal(await saved(), connectionsBefore);
    assert.equal(await countEvents(), eventsBefore);
    if (!mayExchange) assert.equal(await exchanges(), exchangesBefore, 'no code was spent');
  });

  test('when a link is opened in another browser after one began with it', async () => {
    const link = await newLink();
    await begun(owner, link);
    for (const other of [stranger, openVisitor()]) {
      await other.visit(link.connect_link);
      assert.equal((await looked(link)).choices.length, 1, 'looking is free');
      assert.equal(refusal(await other.begin(link)), 'session_in_other_browser');
    }
    await begun(owner, link);
  });

  test("when another person opens the provider's URL", async () => {
    const forwarded = await begun(owner, await newLink());
    const callback = await consent(forwarded, 'grace@example.com');
    assert.equal(refusal(await stranger.visit(callback)), 'state_cookie_err');
    assert.equal(refusal(await owner.visit(callback)), 'state_err', 'the state is spent');
  });

  test('when the callback is opened in another browser, or in one without cookies', async () => {
    for (const other of [stranger, openVisitor()]) {
      const callback = await consent(await begun(owner, await newLink()));
      assert.equal(refusal(await other.visit(callback)), 'state_cookie_err');
      assert.equal(refusal(await owner.visit(callback)), 'state_err');
    }
  });

  test('when the callback is opened by who put his own cookies into the browser before it began', async () => {
    for (const { name, value } of stranger.jar.shownAt(trellis.baseUrl))
      owner.jar.receive(trellis.baseUrl, [`${name}=${value}; Path=/`]);
    const callback = await consent(await begun(owner, await newLink()), 'grace@example.com');
    assert.equal(refusal(await stranger.visit(callback)), 'state_cookie_err');
  });

  test('when twenty others open the callback at once', async () => {
    const callback = await consent(await begun(owner, await newLink()));
    const others = await twenty(async () => {
      const other = openVisitor();
      await begun(other, await newLink());
      return other;
    });
    const refusals = await Promise.all(others.map(async (other) => refusal(await other.visit(callback))));
    assert.deepEqual(refusals.toSorted(), ['state_cookie_err', ...Array(19).fill('state_err')]);
    assert.equal(refusal(await owner.visit(callback)), 'state_err');
  });

  test('when the state is missing, invented, of another person, or given twice', async () => {
    const [own, foreign] = [
      await consent(await begun(owner, await newLink())),
      await consent(await begun(openVisitor(), await newLink())),
    ];
    const foreignState = new URL(foreign).searchParams.get('state')!;
    const cases: [string, (params: URLSearchParams) => void, string][] = [
      ['missing', (params) => params.delete('state'), 'state_err'],
      ['empty', (params) => params.set('state', ''), 'state_err'],
      ['made up', (params) => params.set('state', 'x'.repeat(43)), 'state_err'],
      ['twice', (params) => params.append('state', foreignState), 'state_err'],
      ['foreign', (params) => params.set('state', foreignState), 'state_cookie_err'],
    ];
    for (const [name, change, type] of cases) {
      assert.equal(refusal(await owner.visit(changed(own, change))), type, name);
    }
  });

  test('when the answer is of another issuer, or names none', async () => {
    await trellis.control('POST', 'faults', { case: 'wrong_iss', times: 1 });
    const cases: [string, (params: URLSearchParams) => void][] = [
      ['wrong', () => {}],
      ['changed', (params) => params.set('iss', 'https://issuer.invalid')],
      ['missing', (params) => params.delete('iss')],
      ['twice', (params) => params.append('iss', 'https://issuer.invalid')],
    ];
    for (const [name, change] of cases) {
      const callback = changed(await consent(await begun(owner, await newLink())), change);
      const answer = await owner.visit(callback);
      assert.equal(refusal(answer), 'callback_err', name);
      assert.match(answer.text, /The response is not from the provider|sent an unexpected response/, name);
      assert.equal(refusal(await owner.visit(callback)), 'state_err', `${name}: the state is spent`);
    }
  });

  test('when a link that was forwarded unopened brings another account than the one it is for', async () => {
    mayExchange = true;
    const end_user = { id: 'u1', email: 'ada@example.com', display_name: 'Ada' };
    const link = await newLink({ end_user, require_same_account: true });
    const shown = await looked(link);
    assert.deepEqual(
      [shown.end_user.name, shown.end_user.email, shown.choices[0]?.account],
      ['Ada', 'ada@example.com', { email: 'ada@example.com', rule: 'end_user' }],
    );
    const answer = await stranger.visit(await consent(await begun(stranger, link), 'grace@example.com'));
    assert.equal(refusal(answer), 'another_account');
    assert.match(answer.text, /must be ada@example\.com, and grace@example\.com was chosen/);
  });
});

describe('one connection is saved', () => {
  test('of twenty browsers that begin at once with one link', async () => {
    const link = await newLink();
    const visitors = Array.from({ length: 20 }, openVisitor);
    const answers = await Promise.all(visitors.map((visitor) => visitor.begin(link)));
    const first = answers.findIndex(({ status }) => status === 302);
    const others = answers.filter((_, index) => index !== first);
    assert.deepEqual([...new Set(others.map(refusal))], ['session_in_other_browser']);
    const before = await saved();
    const landed = await visitors[first]!.visit(await consent(answers[first]!.location));
    assert.equal(landed.status, 200, landed.text);
    assert.equal((await saved()) - before, 1);
  });

  test('of a state that is used twenty times at once, and again', async () => {
    const before = [await saved(), await exchanges()];
    const callback = await consent(await begun(owner, await newLink()));
    const answers = await twenty(() => owner.visit(callback));
    assert.equal(answers.filter(({ status }) => status === 200).length, 1);
    assert.equal(refusal(await owner.visit(callback)), 'state_err');
    assert.deepEqual([(await saved()) - before[0]!, (await exchanges()) - before[1]!], [1, 1]);
  });

  test('of twenty trips of one session that end at once', async () => {
    const before = await saved();
    const link = await newLink();
    await begun(owner, link);
    const callbacks = await twenty(async () => consent(await begun(owner, link)));
    const answers = await Promise.all(callbacks.map((callback) => owner.visit(callback)));
    assert.equal(answers.filter(({ status }) => status === 200).length, 1);
    assert.equal((await saved()) - before, 1);
  });

  test('by its owner, even if others open or try the link before and after', async () => {
    const link = await newLink();
    await stranger.visit(link.connect_link);
    assert.equal((await looked(link)).choices.length, 1);
    const address = await begun(owner, link);
    assert.equal(refusal(await stranger.begin(link)), 'session_in_other_browser');
    const before = await saved();
    assert.equal((await owner.visit(await consent(address))).status, 200);
    assert.equal((await saved()) - before, 1);
    const late = await stranger.begin(link);
    assert.equal(late.status, 401);
    assert.match(late.text, /has expired or was already used/);
  });
});
