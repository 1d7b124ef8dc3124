import { Button } from '@mantine/core';
import { type ReactNode, useEffect, useState } from 'react';
import { IconX } from '../ui/icons.tsx';
import { ScopeText } from './Begin.tsx';
import { notifyHost } from './host.ts';
import { Notice } from './Notice.tsx';
import type { Made } from './queries.ts';
import { useTranslate } from './texts.ts';

/**
 * A connection was created, with all permissions or with some missing. The host page, which usually closes the frame,
 * is notified when no decision is left.
 */
export function Done({
  made,
  isFramed,
  onConnected,
  onRest,
  setUp,
}: {
  made: Made;
  isFramed: boolean;
  onConnected: (made: Made) => void;
  /** A further choice before the end, if there is one. */
  setUp?: ReactNode;
  /** Undefined: the session has expired. */
  onRest?: () => Promise<void>;
}) {
  const t = useTranslate();
  const { display_name: name, missing_scopes: missing } = made;
  const [isSettled, setSettled] = useState(missing.length === 0);
  const [isAsking, setAsking] = useState(false);
  const isWhole = isSettled || missing.length === 0;
  const isOver = isWhole && setUp === undefined;
  useEffect(() => {
    if (isOver) onConnected(made);
  }, [isOver, onConnected, made]);

  if (isWhole && setUp !== undefined) return setUp;
  if (isWhole) {
    const action = isFramed
      ? { label: t('finish'), onClick: () => notifyHost({ type: 'close' }) }
      : isClosable() && { label: t('close'), onClick: () => window.close() };
    return (
      <Notice
        tone="success"
        title={t('doneTitle', { name })}
        text={t('doneText')}
        {...(action && { action })}
      >
        {made.account !== null && <strong>{made.account}</strong>}
      </Notice>
    );
  }
  return (
    <Notice tone="warning" title={t('partTitle', { name })} text={t('partText')}>
      <ul className="scopes missing">
        {missing.map((scope) => (
          <li key={scope.scope}>
            <IconX size={16} />
            <span>
              <ScopeText scope={scope} />
              {scope.description !== null && <code className="soft">{scope.scope}</code>}
            </span>
          </li>
        ))}
      </ul>
      {onRest && (
        <Button
          size="md"
          fullWidth
          loading={isAsking}
          onClick={() => {
            setAsking(true);
            void onRest().finally(() => setAsking(false));
          }}
        >
          {t('grantRest')}
        </Button>
      )}
      <button type="button" className="link" onClick={() => setSettled(true)}>
        {t('without')}
      </button>
    </Notice>
  );
}

/** Browsers let a script close only a window that a script has opened, or one that has shown no other page. */
function isClosable(): boolean {
  return window.opener !== null || window.history.length === 1;
}
