/** Parses a provider's webhook: its type, its recipient and its payload. Pure functions. */
import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '../../errors.ts';
import { faultOfJson } from '../../functions/isolation/json-limits.ts';
import type { WebhookPlace, WebhookRules } from '../../providers/definition.ts';
import { fieldAt, type Sent } from './signature.ts';

type Payload = Record<string, unknown> | unknown[] | string | number | boolean | null;

export type ReadWebhook = {
  /** Undefined if the webhook has none: then only subscriptions to all types apply. */
  type: string | undefined;
  payload: Payload;
  /** Undefined if the webhook names none. */
  recipient: (NonNullable<WebhookRules['connection']> & { id: string }) | undefined;
  /** The response to a request that only tests the address. */
  challenge: string | undefined;
};

/** The maximum length of a value. A longer value counts as absent. */
const maxCharacters = 1_024;

/** Throws `invalid_json` and `invalid_content_type` if the body cannot be read. */
export function readWebhook(rules: WebhookRules, sent: Sent): ReadWebhook {
  const payload = readPayload(sent);
  const at = (place: WebhookPlace) => textAt(place, { headers: sent.headers, payload });
  const { connection, challenge } = rules;
  const id = connection && at(connection.from);
  return {
    type: at(rules.type),
    payload,
    recipient: id === undefined || connection === undefined ? undefined : { ...connection, id },
    challenge: challenge === undefined ? undefined : at({ body: challenge }),
  };
}

/** Refuses bytes that are not UTF-8: they would be passed on as other bytes than the signed ones. */
function textOf(body: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (error) {
    throw new AppError('invalid_json', 'The webhook is not in UTF-8.', { cause: error });
  }
}

function readPayload({ headers, body }: Sent): Payload {
  if (body.length === 0) return {};
  const encoding = headers['content-encoding']?.trim().toLowerCase() ?? '';
  if (encoding !== '' && encoding !== 'identity')
    throw new AppError('invalid_content_type', 'Send the webhook without `Content-Encoding`.');
  const type = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (type === 'application/json' || type.endsWith('+json')) {
    try {
      return requireHarmless(JSON.parse(textOf(body)) as Payload);
    } catch (error) {
      if (error instanceof AppError) throw error;
      throw new AppError('invalid_json', undefined, { cause: error });
    }
  }
  if (type === 'application/x-www-form-urlencoded') {
    const fields: Record<string, unknown> = { __proto__: null };
    for (const [name, value] of new URLSearchParams(textOf(body))) fields[name] = value;
    return requireHarmless({ ...fields });
  }
  throw new AppError('invalid_content_type', 'Send the webhook as JSON, or as a form.');
}

const maxLevels = 100;

function requireHarmless(payload: Payload): Payload {
  const fault = faultOfJson(payload, maxLevels);
  if (fault !== undefined) throw new AppError('invalid_json', `The webhook is refused. ${fault}`);
  return payload;
}

function textAt(
  place: WebhookPlace,
  { headers, payload }: { headers: IncomingHttpHeaders; payload: Payload },
): string | undefined {
  const found = 'header' in place ? headers[place.header.toLowerCase()] : fieldAt(payload, place.body);
  const text = typeof found === 'number' ? String(found) : found;
  if (typeof text !== 'string' || text === '' || text.length > maxCharacters || text.includes('\0'))
    return undefined;
  return text;
}
