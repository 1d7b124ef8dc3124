/**
 * The texts of alerts: what happened in one sentence, what to do, and a link to the page of the dashboard.
 *
 * Names of connections, functions and models may come from end users and providers. A text never contains a line break, a
 * control character or a direction mark of a name, and contains at most `maxName` characters of each name.
 */
import { type DescribedType, eventCatalogue } from '../events/event-types.ts';

/** `more`: how many other events of the type and integration the alert reports. */
type Facts = {
  type: string;
  data: Readonly<Record<string, unknown>>;
  more: number;
  environment: string;
  baseUrl: string;
};

/** The body for a Slack-compatible incoming webhook. */
export function slackBody(facts: Facts): string {
  // In code, receivers neither follow addresses nor notify the users and channels that a name mentions.
  const { sentence, link } = alertOf(facts, (name) => `\`${name.replaceAll('`', "'")}\``);
  return JSON.stringify({
    text: `${escapeSlack(`[${facts.environment}] ${sentence}`)}\n${escapeSlack(link)}`,
  });
}

export function alertMail({ brand, ...facts }: Facts & { brand: string }): { subject: string; text: string } {
  const { headline, sentence, link } = alertOf(facts, (name) => `"${name}"`);
  return {
    subject: `[${brand} ${facts.environment}] ${headline}`,
    text: `${sentence}\n\n${link}\n`,
  };
}

/** https://docs.slack.dev/messaging/formatting-message-text#escaping: the characters of mentions and links. */
function escapeSlack(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

type Quote = (name: string) => string;

function alertOf(facts: Facts, quote: Quote): { headline: string; sentence: string; link: string } {
  const { type, data, more, environment, baseUrl } = facts;
  const headline = headlineOf(type, data, (value) => quote(cleanName(value)));
  const step = typeof data.next_step === 'string' ? clean(data.next_step, maxStep) : '';
  const others = more === 0 ? '' : `${more.toLocaleString('en')} more like this since then.`;
  return {
    headline: headline.replace(/\.$/, ''),
    sentence: [headline, others, step].filter((part) => part !== '').join(' '),
    link: `${baseUrl}/app/${encodeURIComponent(environment)}/${pageOf(type, data, more)}`,
  };
}

function headlineOf(type: string, data: Facts['data'], name: (value: unknown) => string): string {
  const { connection_id: connection, provider_config_key: integration, function: functionName, cause } = data;
  switch (type) {
    case 'endpoint.test':
      return 'This is a test: alerts of this environment arrive here.';
    case 'connection.needs_reauth':
      return `Reconnect needed for connection ${name(connection)} of ${name(integration)}: ${cause}.`;
    case 'connection.blocked':
      return `Connection ${name(connection)} of ${name(integration)} is blocked: ${cause}.`;
    case 'sync.failing':
      return (
        `Sync ${name(functionName)} of connection ${name(connection)} (${name(integration)}) has failed ` +
        `${data.failures} times in a row: ${codeOf(data.error)}.`
      );
    case 'integration.misconfigured':
      return `Integration ${name(integration)} has an error: ${cause}.`;
    case 'integration.sunset':
      return `Connections of integration ${name(integration)} may stop working on ${data.on}: ${data.connections}.`;
    case 'endpoint.disabled':
      return `Endpoint ${data.endpoint_id} (${name(data.url)}) was disabled.`;
  }
  const subject = [
    ['integration', integration],
    ['connection', connection],
    ['function', functionName],
    ['model', data.model],
  ].flatMap(([noun, value]) => (typeof value === 'string' ? `${noun} ${name(value)}` : []));
  return subject.length === 0
    ? `${type}: ${meaningOf(type)}`
    : `${type} (${subject.join(', ')}): ${meaningOf(type)}`;
}

/** The first sentence of the meaning of a type. Events of a later release may have a type that this node does not know. */
function meaningOf(type: string): string {
  const described: DescribedType | undefined = Object.hasOwn(eventCatalogue, type)
    ? eventCatalogue[type as keyof typeof eventCatalogue]
    : undefined;
  return described?.meaning.replace(/(?<=\w\.) .*/s, '') ?? 'an event.';
}

/** Only the code of an error: its message may contain values of records. */
function codeOf(error: unknown): string {
  return cleanName((error as { code?: unknown } | undefined)?.code);
}

/** The page of one connection, function or integration, or the list for several. Below `/app/ENVIRONMENT/`. */
function pageOf(type: string, data: Facts['data'], more: number): string {
  const { connection_id: connection, provider_config_key: integration } = data;
  if (type.startsWith('endpoint.')) return 'events';
  if (typeof integration !== 'string') return 'events?tab=feed';
  const key = encodeURIComponent(integration);
  if (typeof connection !== 'string') return `integrations/of/${key}`;
  if (more === 0) return `connections/${key}/${encodeURIComponent(connection)}`;
  if (type === 'connection.needs_reauth') return 'connections?status=needs_reauth';
  if (type === 'connection.blocked') return 'connections?status=blocked';
  return type.startsWith('sync.') ? 'functions?tab=syncs' : 'connections';
}

/** The maximum number of characters of a name, and of the next step. */
const maxName = 100;
const maxStep = 500;

function cleanName(value: unknown): string {
  return clean(String(value ?? 'unknown'), maxName);
}

function clean(text: string, max: number): string {
  const line = [...text.replace(/[\p{C}\p{Z}]+/gu, ' ').trim()];
  return line.length > max ? `${line.slice(0, max - 1).join('')}…` : line.join('');
}
