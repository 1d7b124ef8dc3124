import { Alert, Button, Group, Stack, Text } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import { Fault } from '../../api/client.ts';
import { FaultNotice } from '../../ui/FaultNotice.tsx';

/** What to do about what keeps a sheet from being read, by the type of the fault. */
const steps: Record<string, string> = {
  invalid_link: 'Open the spreadsheet in the browser, and copy its whole address.',
  source_unavailable: 'See that it is there and that this account can open it, then try again.',
  missing_scopes: 'Reconnect the account, and agree to everything that is asked for.',
  integration_misconfigured: 'Enable the API in the Cloud project of the OAuth client, then try again.',
  quota_exhausted: 'Wait a minute, then try again.',
  header_row_missing: 'Choose a row that holds the names of the columns.',
  key_column_missing: 'Choose another column, or tell rows apart in another way.',
  too_many_rows: 'Spread the rows over several tabs, and follow each of them.',
  sheet_too_large: 'Spread the rows over several tabs, and follow each of them.',
  sheet_moving: 'Somebody changes the sheet at the moment. Try again.',
  function_exists:
    'Remove it or give it another name, then try again; or set the sheet up on another integration.',
  disabled_resource: 'Turn it on under Functions, then try again.',
  functions_off: 'Functions are turned off in this service: see TRELLIS_FUNCTIONS.',
};

/** What to do where a run failed by such a fault; undefined where it failed by something else. */
export function nextStepOf(code: string): string | undefined {
  return Object.hasOwn(steps, code) ? steps[code] : undefined;
}

/** A fault of a sheet, in words for the user who can fix it; any other error is shown as on all pages. */
export function SheetFault({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  const { code, message } = toldBy(error);
  const step = nextStepOf(code);
  if (step === undefined) return <FaultNotice error={error} onRetry={onRetry} />;
  const requestId = error instanceof Fault ? error.requestId : undefined;
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={message} role="alert">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">{step}</Text>
        <Group gap="xs">
          <Text size="sm" c="dimmed" ff="monospace">
            {[code, requestId].filter(Boolean).join(' · ')}
          </Text>
          <Button size="compact-sm" variant="default" onClick={onRetry}>
            Try again
          </Button>
        </Group>
      </Stack>
    </Alert>
  );
}

/** An action throws its own type and message, in a payload. */
function toldBy(error: unknown): { code: string; message: string } {
  const { code = '', message = '', payload } = error as Partial<Fault>;
  const { type, message: own } = (payload ?? {}) as { type?: unknown; message?: unknown };
  return typeof type === 'string' && typeof own === 'string'
    ? { code: type, message: own }
    : { code, message };
}
