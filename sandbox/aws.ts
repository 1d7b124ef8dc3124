/**
 * A service of AWS, at `/aws/{service}/{region}/...`: verifies Signature Version 4 by the published algorithm and answers
 * the calls of the tests. https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 *
 * A key is a client of the sandbox: `accessKeyOf` its ID, and its secret. STS issues temporary keys for roles.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Client, Clients } from './clients.ts';
import type { Clock } from './clock.ts';
import { answerUnder, type Faults } from './faults/faults.ts';
import { type Incoming, json, type Reply } from './http.ts';

const maxSkewMs = 15 * 60_000;
/** The lifetime of temporary keys of an assumed role, in seconds. */
const keyLifeS = 3600;
type Session = { secret: string; token: string; expiresAt: number; client: Client };
/** The temporary keys that were issued, by their ID. */
const sessions = new WeakMap<Clients, Map<string, Session>>();
const sha256 = (data: string | Buffer) => createHash('sha256').update(data).digest('hex');
const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();

/** The access key ID of a client. */
export function accessKeyOf(clientId: string): string {
  return `AKIA${sha256(clientId).slice(0, 16).toUpperCase()}`;
}

type Parts = { clients: Clients; clock: Clock; faults: Faults };

export async function answerAws(request: Incoming, parts: Parts): Promise<Reply> {
  const [, , service = '', region = ''] = request.path.split('/');
  const verified = verify(request, { ...parts, service, region });
  if (verified instanceof Refusal) return verified.toReply(service);
  Object.assign(request.about, { sub: verified.clientId, clientId: verified.clientId });
  return answerUnder(parts.faults.takeAt(['api'], request.about), {
    signal: request.signal,
    projectNumber: verified.projectNumber,
    work: async () => {
      if (service === 'sts' && request.method === 'POST') return assumedRole(request, verified, parts);
      return answered(request, { service, key: accessKeyOf(verified.clientId) });
    },
  });
}

function answered(request: Incoming, { service, key }: { service: string; key: string }): Reply {
  if (request.query.get('Action') === 'GetCallerIdentity') {
    const body = `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/${key}</Arn><UserId>${key}</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`;
    return { status: 200, headers: { 'content-type': 'text/xml' }, body };
  }
  const { method, path, headers, body } = request;
  const target = headers['x-amz-target'];
  return json(200, { service, method, path, target, bytes: body.length, sha256: sha256(body) });
}

/** The role `NAME` trusts each key that sends the external ID `of-NAME`; the role `open` needs none. */
function assumedRole(request: Incoming, client: Client, { clients, clock }: Parts): Reply {
  const form = new URLSearchParams(request.body.toString());
  const [, name] = /^arn:aws:iam::123456789012:role\/([\w-]+)$/.exec(form.get('RoleArn') ?? '') ?? [];
  if (
    form.get('Action') !== 'AssumeRole' ||
    form.get('Version') !== '2011-06-15' ||
    !form.get('RoleSessionName')
  )
    return new Refusal(400, 'InvalidAction', 'Could not find the operation.').toReply('sts');
  if (name === undefined || (name !== 'open' && form.get('ExternalId') !== `of-${name}`))
    return new Refusal(403, 'AccessDenied', 'User is not authorized to perform: sts:AssumeRole').toReply(
      'sts',
    );
  const lifeS = Math.min(Number(form.get('DurationSeconds') ?? keyLifeS), keyLifeS);
  const id = `ASIA${randomBytes(8).toString('hex').toUpperCase()}`;
  const session = {
    secret: randomBytes(30).toString('base64'),
    token: randomBytes(90).toString('base64'),
    client,
    expiresAt: clock.now() + lifeS * 1000,
  };
  const issued = sessions.get(clients) ?? new Map<string, Session>();
  sessions.set(clients, issued.set(id, session));
  const keys = `<AccessKeyId>${id}</AccessKeyId><SecretAccessKey>${session.secret}</SecretAccessKey><SessionToken>${session.token}</SessionToken><Expiration>${new Date(session.expiresAt).toISOString()}</Expiration>`;
  const body = `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>${keys}</Credentials></AssumeRoleResult></AssumeRoleResponse>`;
  return { status: 200, headers: { 'content-type': 'text/xml' }, body };
}

class Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;

  constructor(status: number, code: string, message: string) {
    this.status = status;
    this.code = code;
    this.message = message;
  }

  toReply(service: string): Reply {
    const error = `<Code>${this.code}</Code><Message>${this.message}</Message>`;
    const body =
      service === 's3'
        ? `<?xml version="1.0" encoding="UTF-8"?>\n<Error>${error}<RequestId>0</RequestId></Error>`
        : `<ErrorResponse><Error><Type>Sender</Type>${error}</Error><RequestId>0</RequestId></ErrorResponse>`;
    return { status: this.status, headers: { 'content-type': 'text/xml' }, body };
  }
}

const authorizationForm =
  /^AWS4-HMAC-SHA256 Credential=(\w+)\/(\d{8})\/([\w-]+)\/([\w-]+)\/aws4_request, ?SignedHeaders=([\w;-]+), ?Signature=([0-9a-f]{64})$/;

function verify(
  request: Incoming,
  { clients, clock, service, region }: Parts & { service: string; region: string },
): Client | Refusal {
  const { authorization = '' } = request.headers;
  const isS3 = service === 's3';
  if (authorization === '')
    return new Refusal(403, 'MissingAuthenticationToken', 'Request is missing Authentication Token');
  const [, key = '', day = '', inRegion = '', ofService = '', names = '', given = ''] =
    authorizationForm.exec(authorization) ?? [];
  const stamp = textOf(request, 'x-amz-date');
  const time = Date.parse(stamp.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z'));
  if (key === '' || Number.isNaN(time))
    return new Refusal(400, 'IncompleteSignature', 'Authorization header or date is incomplete');
  const session = sessions.get(clients)?.get(key);
  if (session !== undefined && textOf(request, 'x-amz-security-token') !== session.token)
    return new Refusal(403, 'InvalidClientTokenId', 'The security token included in the request is invalid.');
  if (session !== undefined && session.expiresAt <= clock.now())
    return new Refusal(403, 'ExpiredToken', 'The security token included in the request is expired');
  const client = session?.client ?? clients.list().find(({ clientId }) => accessKeyOf(clientId) === key);
  if (client === undefined)
    return isS3
      ? new Refusal(
          403,
          'InvalidAccessKeyId',
          'The AWS Access Key Id you provided does not exist in our records.',
        )
      : new Refusal(403, 'InvalidClientTokenId', 'The security token included in the request is invalid.');
  if (Math.abs(clock.now() - time) > maxSkewMs)
    return isS3
      ? new Refusal(
          403,
          'RequestTimeTooSkewed',
          'The difference between the request time and the current time is too large.',
        )
      : new Refusal(
          403,
          'SignatureDoesNotMatch',
          `Signature expired: ${stamp} is now earlier than the limit`,
        );
  const mismatch = (message: string) => new Refusal(403, 'SignatureDoesNotMatch', message);
  if (inRegion !== region || ofService !== service || day !== stamp.slice(0, 8))
    return mismatch('Credential should be scoped to a valid region and service.');
  const signed = names.split(';');
  const isUnsigned = (name: string) => name.startsWith('x-amz-') && !signed.includes(name);
  if (!signed.includes('host') || Object.keys(request.headers).some(isUnsigned))
    return mismatch('A header that must be signed is not signed.');
  const announced = textOf(request, 'x-amz-content-sha256');
  const isCovered = !isS3 || announced !== 'UNSIGNED-PAYLOAD';
  if (isCovered && announced !== '' && announced !== sha256(request.body))
    return new Refusal(
      400,
      'XAmzContentSHA256Mismatch',
      'The provided header does not match what was computed.',
    );
  const scope = `${day}/${region}/${service}/aws4_request`;
  const expected = signatureOf(request, { secret: session?.secret ?? client.clientSecret, scope, names });
  return timingSafeEqual(Buffer.from(expected, 'hex'), Buffer.from(given, 'hex'))
    ? client
    : mismatch('The request signature we calculated does not match the signature you provided.');
}

/** The signature of a request, in hexadecimal; `names` are the signed headers, separated by semicolons. */
export function signatureOf(
  request: Pick<Incoming, 'method' | 'rawUrl' | 'headers' | 'body'>,
  { secret, scope, names }: { secret: string; scope: string; names: string },
): string {
  const isS3 = scope.split('/')[2] === 's3';
  const announced = textOf(request, 'x-amz-content-sha256');
  const canonical = [
    request.method,
    canonicalPath(request.rawUrl, isS3),
    canonicalQuery(request.rawUrl),
    ...names.split(';').map((name) => `${name}:${textOf(request, name).trim().replace(/ +/g, ' ')}`),
    '',
    names,
    isS3 && announced === 'UNSIGNED-PAYLOAD' ? announced : sha256(request.body),
  ].join('\n');
  const toSign = ['AWS4-HMAC-SHA256', textOf(request, 'x-amz-date'), scope, sha256(canonical)].join('\n');
  const key = scope.split('/').reduce<string | Buffer>((before, part) => hmac(before, part), `AWS4${secret}`);
  return hmac(key, toSign).toString('hex');
}

function textOf({ headers }: Pick<Incoming, 'headers'>, name: string): string {
  const value = headers[name] ?? '';
  return Array.isArray(value) ? value.join(',') : value;
}

/** Each segment is encoded once more, except for S3. */
function canonicalPath(rawUrl: string, isS3: boolean): string {
  const [path = '/'] = rawUrl.split('?', 1);
  return path
    .split('/')
    .map((part) => encoded(isS3 ? decodeURIComponent(part) : part))
    .join('/');
}

function canonicalQuery(rawUrl: string): string {
  const [, query = ''] = /\?(.*)$/s.exec(rawUrl) ?? [];
  if (query === '') return '';
  return query
    .split('&')
    .map((pair) => {
      const [name = '', ...value] = pair.split('=');
      return [name, value.join('=')].map((part) => encoded(decodeURIComponent(part))).join('=');
    })
    .sort()
    .join('&');
}

/** RFC 3986: all but unreserved characters. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
