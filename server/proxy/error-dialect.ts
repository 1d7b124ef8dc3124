import type { Brand } from '../brand.ts';
import type { AppError } from '../errors.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

/** The status words of `google.rpc.Code` by the HTTP status they stand with (google/rpc/code.proto). */
const googleStatus: Readonly<Record<number, string>> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  405: 'UNIMPLEMENTED',
  408: 'DEADLINE_EXCEEDED',
  409: 'ABORTED',
  424: 'FAILED_PRECONDITION',
  429: 'RESOURCE_EXHAUSTED',
  500: 'INTERNAL',
  501: 'UNIMPLEMENTED',
  502: 'UNAVAILABLE',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
};

/**
 * An error of ours in the words of the provider, so that its own clients can read it: code and message arrive, the
 * reason is our code in capitals (AIP-193). Undefined where the provider has no dialect of its own.
 */
export function inDialect(
  error: AppError,
  { definition, brand }: { definition: Pick<ProviderDefinition, 'api'>; brand: Brand },
): Record<string, unknown> | undefined {
  if (definition.api.error_format !== 'google') return undefined;
  return {
    error: {
      code: error.status,
      message: error.message,
      status: googleStatus[error.status] ?? (error.status < 500 ? 'FAILED_PRECONDITION' : 'UNKNOWN'),
      details: [
        {
          '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
          reason: error.code.toUpperCase(),
          domain: brand.word,
          metadata: metadataOf(error.payload),
        },
      ],
    },
  };
}

/** ErrorInfo takes texts only; what is nested is written as JSON. */
function metadataOf(payload: unknown): Record<string, string> {
  if (typeof payload !== 'object' || payload === null) return {};
  const known = Object.entries(payload).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    known.map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  );
}
