/**
 * AWS Signature Version 4: the secret is never sent, and each request is signed with it.
 * https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 *
 * The signature covers method, path, query, host, the `x-amz-*` headers and the SHA-256 of the body. For S3 the body is not
 * covered (`UNSIGNED-PAYLOAD`), so that it can be streamed.
 */
import { hash } from 'node:crypto';
import { AwsV4Signer } from 'aws4fetch';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import { templateFields } from '../providers/definition.ts';
import { fillText } from '../providers/template.ts';
import type { AuthMode, Signer } from './mode.ts';

type AwsCredentials = {
  readonly type: 'AWS_SIGV4';
  readonly access_key_id: string;
  readonly secret_access_key: string;
  /** Of temporary credentials. */
  readonly session_token?: string;
};

const keyText = (max: number) =>
  z
    .string()
    .min(16)
    .max(max)
    .regex(/^[\x21-\x7e]+$/, 'must be printable ASCII without spaces');
/** The fields of a key. */
export const awsKey = {
  access_key_id: z.string().regex(/^\w{16,128}$/, 'must be letters and digits, at least 16'),
  secret_access_key: keyText(256),
  session_token: keyText(8192),
};
const importSchema = z
  .strictObject({
    ...awsKey,
    type: z.literal('AWS_SIGV4'),
    // The field of a form may be empty.
    session_token: awsKey.session_token.or(z.literal('')).optional(),
  })
  .transform(
    ({ session_token, ...key }): AwsCredentials => ({ ...key, ...(session_token && { session_token }) }),
  );

/** Hosts from which the service and the region are read: an endpoint may have another name than its service. */
const awsHost = /\.amazonaws\.com(\.cn)?$/;
/** Only the signature itself sets them. */
const ownHeaders = new Set(['x-amz-content-sha256', 'x-amz-date', 'x-amz-security-token']);

export const awsSigV4: AuthMode<AwsCredentials> = {
  name: 'AWS_SIGV4',
  client: 'none',
  ownCredentialsOnly: false,
  form: {
    path: '/auth/aws-sigv4',
    operationId: 'connectByAwsKey',
    summary: 'Connect with an AWS access key',
    example: { access_key_id: 'AKIAEXAMPLEEXAMPLE12', secret_access_key: 'secret-of-the-access-key' },
    fields: {
      access_key_id: { secret: false, required: true, title: 'Access key ID' },
      secret_access_key: { secret: true, required: true, title: 'Secret access key' },
      session_token: {
        secret: true,
        required: false,
        title: 'Session token',
        description: 'Only for temporary credentials, which stop working when they expire.',
      },
    },
  },
  importSchema,
  placeholders: [],
  templateValues: () => ({}),
  placement: [],
  definitionFaults: ({ signature, placement }) => [
    ...(signature === undefined
      ? [[['signature'], 'an AWS_SIGV4 provider needs it'] as [string[], string]]
      : []),
    ...(placement.length > 0
      ? [[['placement'], 'is not allowed: an AWS_SIGV4 provider signs each request'] as [string[], string]]
      : []),
  ],
  toWire: ({ type, access_key_id, secret_access_key, session_token }) => ({
    type,
    access_key_id,
    secret_access_key,
    ...(session_token !== undefined && { session_token }),
  }),
  signer: awsSigner,
};

/** Signs with a key, which may be temporary. Throws TemplateError. */
export function awsSigner(
  credentials: Omit<AwsCredentials, 'type'>,
  {
    definition,
    values,
  }: Pick<Parameters<NonNullable<AuthMode<AwsCredentials>['signer']>>[1], 'definition' | 'values'>,
): Signer {
  const fields = templateFields(definition);
  const { service = '', region = '' } = definition.signature ?? {};
  const own = {
    service: fillText(service, { values, fields }),
    region: fillText(region, { values, fields }),
  };
  return {
    coversBody: () => own.service !== 's3',
    async sign({ method, url, headers, body }) {
      const isAws = awsHost.test(new URL(url).hostname);
      const signed = signedHeaders(headers);
      const options = {
        method,
        url,
        headers: signed,
        accessKeyId: credentials.access_key_id,
        secretAccessKey: credentials.secret_access_key,
        ...(credentials.session_token !== undefined && { sessionToken: credentials.session_token }),
        ...(!isAws && own),
      };
      const isS3 = new AwsV4Signer(options).service === 's3';
      // Only a Base-Url-Override leads from S3 to another service.
      if (!isS3 && body === undefined) throw new AppError('invalid_body', 'A body is streamed to S3 only.');
      signed.set('x-amz-content-sha256', isS3 ? 'UNSIGNED-PAYLOAD' : hash('sha256', body!));
      const request = await new AwsV4Signer(options).sign();
      return Object.fromEntries(request.headers);
    },
  };
}

function signedHeaders(rawHeaders: readonly string[]): Headers {
  const headers = new Headers();
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!.toLowerCase();
    if (name.startsWith('x-amz-') && !ownHeaders.has(name)) headers.append(name, rawHeaders[at + 1]!);
  }
  return headers;
}
