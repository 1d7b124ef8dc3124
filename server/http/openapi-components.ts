import type { Brand } from '../brand.ts';
import { type ErrorCode, errorCatalogue } from '../errors.ts';

/** What the document's routes refer to: how errors look, what stands in headers, how to say who calls. */
export function components(brand: Brand) {
  return {
    securitySchemes: {
      key: { type: 'http', scheme: 'bearer', description: 'Secret key of an environment.' },
      ticket: { type: 'http', scheme: 'bearer', description: 'Ticket for some calls of one connection.' },
      session: { type: 'http', scheme: 'bearer', description: 'Token of a connect session.' },
      cookie: {
        type: 'apiKey',
        in: 'header',
        name: brand.header('Environment'),
        description: 'A signed-in person names the environment here; the cookie of the sign-in goes along.',
      },
      session_in_query: {
        type: 'apiKey',
        in: 'query',
        name: 'connect_session_token',
        description: 'Token of a connect session, where a browser follows a link.',
      },
    },
    schemas: { Error: errorSchema },
    headers: {
      'X-Request-Id': {
        description: 'What the log calls this request.',
        schema: { type: 'string' },
        example: 'req-7f3k2m',
      },
      'Retry-After': {
        description: 'Seconds to wait before the next try, where they are known.',
        schema: { type: 'string' },
        example: '10',
      },
    },
    examples: Object.fromEntries(
      Object.keys(errorCatalogue).map((code) => [code, errorExample(code as ErrorCode)]),
    ),
  } as const;
}

const errorSchema = {
  type: 'object',
  description: 'Any error of ours. docs/errors.md explains each code.',
  properties: {
    error: {
      type: 'object',
      properties: {
        code: { type: 'string', enum: Object.keys(errorCatalogue), description: 'For programs.' },
        message: { type: 'string', description: 'For people: what happened, and what to do.' },
        errors: {
          type: 'array',
          description: 'One fault in one field each.',
          items: {
            type: 'object',
            properties: {
              code: { type: 'string' },
              message: { type: 'string' },
              path: { type: 'array', items: { type: 'string' } },
            },
            required: ['code', 'message', 'path'],
            additionalProperties: false,
          },
        },
        payload: { description: 'Facts for the program that calls.' },
        upstream: { description: 'What a provider answered, where that is the error.' },
      },
      required: ['code', 'message'],
      additionalProperties: false,
    },
  },
  required: ['error'],
  additionalProperties: false,
} as const;

function errorExample(code: ErrorCode) {
  const { message } = errorCatalogue[code];
  return { summary: message, value: { error: { code, message } } };
}
