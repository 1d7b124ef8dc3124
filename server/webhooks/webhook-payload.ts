/** What a provider's webhook says: kind, whom it is for, and the payload. Pure. */
import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '../errors.ts';
import type { WebhookPlace, WebhookRules } from '../providers/definition-webhook.ts';
import { fieldAt, type Sent } from './signature.ts';

type Payload = Record<string, unknown> | unknown[] | string | number | boolean | null;

export type ReadWebhook = {
  /** Undefined where it says none: then it is for those alone who take all. */
  type: string | undefined;
  payload: Payload;
  /** Undefined where it names nobody. */
  recipient:
    | { by: 'connection_id' | 'account'; id: string }
    | { by: 'tag'; id: string; tag: string }
    | undefined;
  /** The answer to a question that only tries the address. */
  challenge: string | undefined;
};

/** Of any value that names something; longer is none. */
const maxCharacters = 1_024;

/** Throws `invalid_json` and `invalid_content_type` where the body cannot be read. */
export function readWebhook(rules: WebhookRules, sent: Sent): ReadWebhook {
  const payload = readPayload(sent);
  const at = (place: WebhookPlace) => textAt(place, { headers: sent.headers, payload });
  const { connection, challenge } = rules;
  const id = connection && at(connection.from);
  return {
    type: at(rules.type),
    payload,
    recipient: id === undefined || connection === undefined ? undefined : { ...withoutPlace(connection), id },
    challenge: challenge === undefined ? undefined : at({ body: challenge }),
  };
}

function withoutPlace(connection: NonNullable<WebhookRules['connection']>) {
  return connection.by === 'tag' ? { by: connection.by, tag: connection.tag } : { by: connection.by };
}

/** As strict as a signature is: bytes that are no UTF-8 would be handed on as other ones. */
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

/** Refuses a payload that changes the object it is merged into, or overflows the stack of code that walks it. */
function requireHarmless(payload: Payload): Payload {
  let level: unknown[] = [payload];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxLevels) throw new AppError('invalid_json', 'The webhook is nested too deeply.');
    level = level.flatMap((value) => {
      if (typeof value !== 'object' || value === null) return [];
      if (Object.hasOwn(value, '__proto__'))
        throw new AppError('invalid_json', 'The webhook has a key `__proto__`.');
      return Object.values(value).filter((inner) => typeof inner === 'object' && inner !== null);
    });
  }
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
