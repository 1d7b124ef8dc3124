import { Button, Skeleton } from '@mantine/core';
import { type ReactNode, useEffect, useRef } from 'react';
import { useTranslate } from './texts.ts';

/** A result: an icon, a text, and an action. The title receives the focus, so that screen readers announce it. */
export function Notice({
  tone,
  title,
  text,
  action,
  children,
}: {
  tone: 'success' | 'warning' | 'error';
  title: string;
  text: string;
  action?: { label: string; onClick: () => void };
  children?: ReactNode;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  return (
    <section className="notice">
      <span className={`mark ${tone}`} aria-hidden="true">
        {{ success: '✓', warning: '!', error: '×' }[tone]}
      </span>
      <h1 ref={heading} tabIndex={-1}>
        {title}
      </h1>
      <p className="soft">{text}</p>
      {children}
      {action && (
        <Button size="md" fullWidth onClick={action.onClick}>
          {action.label}
        </Button>
      )}
    </section>
  );
}

/** A technical message, verbatim, for support. */
export function Said({ text }: { text: string }) {
  const t = useTranslate();
  return (
    <p className="said">
      <span className="soft">{t('said')}</span>
      <code>{text}</code>
    </p>
  );
}

/** As high as the content, so that the layout does not move. */
export function Loading() {
  const t = useTranslate();
  return (
    <div role="status" aria-label={t('loading')} className="loading">
      <Skeleton height={44} width={44} radius="md" />
      <Skeleton height={28} width="70%" />
      <Skeleton height={16} />
      <Skeleton height={16} width="85%" />
      <Skeleton height={92} mt="sm" />
      <Skeleton height={42} mt="sm" />
    </div>
  );
}
