import { Alert, Button, Group, Stack, Text } from '@mantine/core';
import { Fault } from '../../api/client.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle } from '../../ui/icons.tsx';

/** The next step for a fault of a sheet, by its type. */
const steps: Record<string, string> = {
  invalid_link: 'Open the spreadsheet in the browser and copy the full address.',
  source_unavailable: 'Check that the spreadsheet exists and that this account can open it. Then try again.',
  missing_scopes: 'Reconnect the account and grant all requested scopes.',
  integration_misconfigured:
    'Enable the API in the Google Cloud project of the OAuth client. Then try again.',
  quota_exhausted: 'Wait a minute, then try again.',
  header_row_missing: 'Choose the row with the names of the columns.',
  key_column_missing: 'Choose another column or another identification of rows.',
  too_many_rows: 'Split the rows into several tabs and add each tab as a sheet.',
  sheet_too_large: 'Split the rows into several tabs and add each tab as a sheet.',
  sheet_moving: 'The sheet changed during the read. Try again.',
  function_exists: 'Remove or rename this function and try again, or use another integration.',
  disabled_resource: 'Turn the function on under Functions. Then try again.',
  functions_off: 'Functions are turned off in this service (TRELLIS_FUNCTIONS).',
};

/** The next step for the error of a run; undefined for other errors. */
export function nextStepOf(code: string): string | undefined {
  return Object.hasOwn(steps, code) ? steps[code] : undefined;
}

/** A fault of a sheet with its next step; other errors as on all pages. */
export function SheetFault({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  const { code, message } = faultFields(error);
  const step = nextStepOf(code);
  if (step === undefined) return <FaultNotice error={error} onRetry={onRetry} />;
  const requestId = error instanceof Fault ? error.requestId : undefined;
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={message} role="alert">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">{step}</Text>
        <Group gap="xs">
          <Dimmed ff="monospace">{[code, requestId].filter(Boolean).join(' · ')}</Dimmed>
          <Button size="compact-sm" variant="default" onClick={onRetry}>
            Try again
          </Button>
        </Group>
      </Stack>
    </Alert>
  );
}

/** An action throws its own type and message in a payload. */
function faultFields(error: unknown): { code: string; message: string } {
  const { code = '', message = '', payload } = error as Partial<Fault>;
  const { type, message: own } = (payload ?? {}) as { type?: unknown; message?: unknown };
  return typeof type === 'string' && typeof own === 'string'
    ? { code: type, message: own }
    : { code, message };
}
