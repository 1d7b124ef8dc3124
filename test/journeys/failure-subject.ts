import type { FaultName } from '../../sandbox/faults/cases.ts';
import { type Answer, connect, type TestTrellis } from '../support/trellis.ts';

/** An account with a sheet, connected through an integration of its own, so that no case disturbs another. */
export type Subject = {
  account: string;
  integration: string;
  connectionId: string;
  headers: Record<string, string>;
  sheet: string;
};
type Event = { type: string; data: Record<string, unknown> };

let made = 0;

/** Steps that the cases of failure have in common. */
export function failureSteps(trellis: TestTrellis) {
  const at = ({ connectionId, integration }: Subject, rest = '') =>
    `/connections/${connectionId}${rest}?provider_config_key=${integration}`;
  const idOf = ({ connectionId }: Subject) => connectionId;

  async function makeAccount(): Promise<string> {
    made += 1;
    const email = `case-${made}@example.com`;
    await trellis.control('POST', 'accounts', { email });
    return email;
  }

  /** All events, without how a connection came to be and got what the test gave it. */
  async function eventsOf({ integration }: Pick<Subject, 'integration'>): Promise<Event[]> {
    const events: Event[] = [];
    for (let next: unknown = '0'; ; ) {
      const { body } = await trellis.call('GET', `/events?limit=1000&after=${String(next)}`);
      const page = body.events as Event[];
      if (page.length === 0) break;
      events.push(...page);
      next = body.next_after;
    }
    const beginnings = ['connection.created', 'connection.reconnected'];
    return events.filter(
      ({ type, data }) => data.provider_config_key === integration && !beginnings.includes(type),
    );
  }

  return {
    at,
    makeAccount,
    eventsOf,
    async subject(given: { fault?: FaultName; allow?: string[] } = {}): Promise<Subject> {
      const account = await makeAccount();
      const file = { account, title: 'Stock', sheet: 'Sheet1', rows: [['id'], ['a'], ['b']] };
      const { spreadsheetId } = await trellis.control('POST', 'spreadsheets', file);
      if (given.fault) await trellis.control('POST', 'faults', { case: given.fault, account });
      const connected = await connect(trellis, {
        account,
        integration: `case-${made}`,
        ...(given.allow && { allow: given.allow }),
      });
      return { account, ...connected, sheet: `/v4/spreadsheets/${String(spreadsheetId)}/values` };
    },
    read: (subject: Subject) =>
      trellis.call('GET', `/proxy${subject.sheet}/Sheet1!A1:A9`, { headers: subject.headers }),
    append: (subject: Subject) =>
      trellis.call('POST', `/proxy${subject.sheet}/Sheet1!A1:append?valueInputOption=RAW`, {
        headers: subject.headers,
        body: { values: [['c']] },
      }),
    fault: (name: FaultName, subject: Subject, more: Record<string, unknown> = {}) =>
      trellis.control('POST', 'faults', { case: name, account: subject.account, ...more }),
    heal: (subject: Subject) => trellis.control('DELETE', `faults?account=${subject.account}`),
    calls: async (path: string) => Number((await trellis.control('GET', 'calls'))[path] ?? 0),
    healthOf: async (subject: Subject) => (await trellis.call('GET', at(subject, '/health'))).body,
    typesOf: async (subject: Subject) => (await eventsOf(subject)).map(({ type }) => type),
    /** Waits for what is written after a reply. */
    async settledEvents(subject: Subject, count: number): Promise<Event[]> {
      for (let turn = 0; turn < 100; turn += 1) {
        const events = await eventsOf(subject);
        if (events.length >= count) return events;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return eventsOf(subject);
    },
    /** Moves the expiry in our books, as time would; `final` leaves nothing to refresh with. */
    async expire(subject: Subject, kept: 'refreshable' | 'final' = 'refreshable'): Promise<void> {
      const { body } = await trellis.call('GET', `${at(subject)}&refresh_token=true`);
      const { access_token, refresh_token } = body.credentials as Record<string, string>;
      const expires_at = new Date(Date.now() - 1000).toISOString();
      const { status, text } = await trellis.call('POST', '/connections', {
        body: {
          provider_config_key: subject.integration,
          connection_id: idOf(subject),
          credentials: {
            type: 'OAUTH2',
            access_token,
            expires_at,
            ...(kept === 'refreshable' && { refresh_token }),
          },
        },
      });
      if (status !== 201) throw new Error(text);
    },
    /** A person on the way through the provider's pages: what the callback answers them. */
    async walk(
      session: { path: string; body: Record<string, unknown> },
      { integration, account, deny = false }: { integration: string; account: string; deny?: boolean },
    ): Promise<Answer> {
      const created = await trellis.call('POST', session.path, { body: session.body });
      const { token } = created.body.data as { token: string };
      const begun = await fetch(
        `${trellis.baseUrl}/oauth/connect/${integration}?connect_session_token=${token}`,
        { redirect: 'manual' },
      );
      const cookies = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
      const { redirect } = await trellis.control('POST', 'authorize', {
        url: begun.headers.get('location'),
        account,
        deny,
      });
      const landed = await fetch(String(redirect), { headers: { cookie: cookies.join('; ') } });
      return { status: landed.status, headers: landed.headers, text: await landed.text(), body: {} };
    },
  };
}

/** Status and our code; null where the answer is the provider's own. */
export function codeOf({ status, headers }: Answer): [number, string | null] {
  return [status, headers.get('x-trellis-error')];
}
