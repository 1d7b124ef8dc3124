import { Button } from '@mantine/core';
import { Fault } from '../api/client.ts';
import { type TextKey, useSay } from './texts.ts';

/** By the type of the fault, where the person can do something about it. */
const texts: Record<string, TextKey> = {
  source_unavailable: 'sheetUnavailable',
  invalid_link: 'sheetBadLink',
  missing_scopes: 'sheetScopes',
  quota_exhausted: 'sheetBusy',
  header_row_missing: 'sheetNoColumns',
  unreachable: 'unreachableText',
  unknown_connect_session_token: 'sheetLate',
};

/** Why a sheet cannot be read, and what to do. */
export function SheetFault({
  fault,
  account,
  onAgain,
}: {
  fault: unknown;
  account: string;
  onAgain: () => void;
}) {
  const say = useSay();
  const { code, payload } = fault instanceof Fault ? fault : { code: 'unknown', payload: undefined };
  const type = (payload as { type?: unknown } | undefined)?.type;
  const known = texts[typeof type === 'string' ? type : code];
  return (
    <div className="refusal">
      <p className="bad" role="alert">
        {known === undefined ? `${say('sheetFault')} (${code})` : say(known, { account })}
      </p>
      {code !== 'unknown_connect_session_token' && (
        <Button variant="default" onClick={onAgain}>
          {say('tryAgain')}
        </Button>
      )}
    </div>
  );
}
