/** Parses a provider's webhook: its type, its recipients and its payload. Pure functions. */
import { AppError } from '../../errors.ts';
import { examineJson, faultOfJson, maxParsedValues } from '../../functions/isolation/json-limits.ts';
import type { WebhookPlace, WebhookRecipient, WebhookRules } from '../../providers/definition.ts';
import { fieldsAt, type Sent } from './signature.ts';

export type Payload = Record<string, unknown> | unknown[] | string | number | boolean | null;

export type ReadWebhook = {
  /** Undefined if the webhook has none: then only subscriptions to all types apply. */
  type: string | undefined;
  payload: Payload;
  /** Empty if the webhook names none. Several `ids` are several connections. */
  recipients: (WebhookRecipient & { ids: string[] })[];
  /** Whether the provider has changed the access of these connections. */
  mustRecheck: boolean;
};

/** The maximum length of a value. A longer value counts as absent. */
const maxCharacters = 1_024;

/** A secret that was sent in the body is not in the payload. */
export function readWebhook(
  rules: WebhookRules,
  { sent, payload }: { sent: Sent; payload: Payload },
): ReadWebhook {
  const { connection = [], proof } = rules;
  const type = (rules.type ?? []).flatMap((place) => textsAt(place, { sent, payload }))[0];
  const read = {
    type,
    recipients: connection
      .map((by) => ({ ...by, ids: [...new Set(textsAt(by.from, { sent, payload }))] }))
      .filter(({ ids }) => ids.length > 0),
    mustRecheck: mustRecheck(rules, { type, sent, payload }),
  };
  if (proof.scheme === 'token' && proof.body !== undefined) removeFields(payload, proof.body);
  return { ...read, payload };
}

function mustRecheck(
  { recheck }: WebhookRules,
  { type, ...of }: { type: string | undefined; sent: Sent; payload: Payload },
): boolean {
  if (recheck === undefined || (recheck.type !== undefined && recheck.type !== type)) return false;
  return textsAt(recheck.from, of).some((value) => recheck.values.includes(value));
}

/** What a request that only tests the address wants back; undefined if the request is a webhook. */
export function challengeIn(
  rules: WebhookRules,
  { method, sent, payload }: { method: 'GET' | 'POST'; sent: Sent; payload: Payload },
): string | undefined {
  const { challenge } = rules;
  if (challenge?.method !== method) return undefined;
  const value = challenge.from === undefined ? '' : textsAt(challenge.from, { sent, payload })[0];
  return challenge.equals === undefined || challenge.equals === value ? value : undefined;
}

function removeFields(payload: Payload, path: string): void {
  const [, before, name = ''] = /^(?:(.*)\.)?([^.]+)$/s.exec(path) ?? [];
  const holders = (before === undefined ? [payload] : fieldsAt(payload, before)).flat();
  for (const holder of holders) {
    if (typeof holder === 'object' && holder !== null) delete (holder as Record<string, unknown>)[name];
  }
}

/** Refuses bytes that are not UTF-8: they would be passed on as other bytes than the signed ones. */
function textOf(body: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (error) {
    throw new AppError('invalid_json', 'The webhook is not in UTF-8.', { cause: error });
  }
}

/** For a body that is parsed before its proof. Throws `invalid_json` if parsing the body would take long. */
export function requireFewValues({ body }: Sent): void {
  let fields = 0;
  for (let at = body.indexOf('&'); at >= 0 && fields <= maxParsedValues; at = body.indexOf('&', at + 1))
    fields += 1;
  if (fields > maxParsedValues || examineJson(body).values > maxParsedValues)
    throw new AppError(
      'invalid_json',
      `The webhook has more than ${maxParsedValues.toLocaleString('en')} values.`,
    );
}

/**
 * Throws `invalid_json` and `invalid_content_type` if the body cannot be read. `form_json` is the field of a form that
 * holds the payload.
 */
export function readPayload(
  { headers, body }: Sent,
  { form_json: field }: Pick<WebhookRules, 'form_json'>,
): Payload {
  if (body.length === 0) return {};
  const encoding = headers['content-encoding']?.trim().toLowerCase() ?? '';
  if (encoding !== '' && encoding !== 'identity')
    throw new AppError('invalid_content_type', 'Send the webhook without `Content-Encoding`.');
  const type = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (type === 'application/json' || type.endsWith('+json')) {
    return jsonIn(textOf(body));
  }
  if (type === 'application/x-www-form-urlencoded') {
    const fields: Record<string, unknown> = { __proto__: null };
    for (const [name, value] of new URLSearchParams(textOf(body))) fields[name] = value;
    const payload = field === undefined ? undefined : fields[field];
    return typeof payload === 'string' ? jsonIn(payload) : requireHarmless({ ...fields });
  }
  throw new AppError('invalid_content_type', 'Send the webhook as JSON, or as a form.');
}

function jsonIn(text: string): Payload {
  try {
    return requireHarmless(JSON.parse(text) as Payload);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('invalid_json', undefined, { cause: error });
  }
}

const maxLevels = 100;

function requireHarmless(payload: Payload): Payload {
  const fault = faultOfJson(payload, maxLevels);
  if (fault !== undefined) throw new AppError('invalid_json', `The webhook is refused. ${fault}`);
  return payload;
}

/** The texts at a place, without those that are too long. */
export function textsAt(place: WebhookPlace, { sent, payload }: { sent: Sent; payload: Payload }): string[] {
  const found =
    'header' in place
      ? [sent.headers[place.header.toLowerCase()]]
      : 'query' in place
        ? [URL.parse(sent.url)?.searchParams.get(place.query)]
        : fieldsAt(payload, place.body)
            .flatMap((value) => insideOf(place, value))
            .flat();
  return found
    .map((value) => (typeof value === 'number' ? String(value) : value))
    .filter((text): text is string => typeof text === 'string')
    .filter((text) => text !== '' && text.length <= maxCharacters && !text.includes('\0'));
}

function insideOf({ base64_json: path }: { base64_json?: string | undefined }, value: unknown): unknown[] {
  if (path === undefined) return [value];
  try {
    const text = textOf(Buffer.from(typeof value === 'string' ? value : '', 'base64'));
    return fieldsAt(requireHarmless(JSON.parse(text) as Payload), path);
  } catch {
    return [];
  }
}
