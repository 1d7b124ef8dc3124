import { Tabs } from '@mantine/core';
import { useNavigate, useSearch } from '@tanstack/react-router';
import type { ComponentType } from 'react';
import { Page } from '../../ui/Page.tsx';
import { TabRow } from '../../ui/TabRow.tsx';
import { GuideLink } from '../links.tsx';
import type { SettingsTab } from '../search.ts';
import { useIsOwner, useMay } from '../sign-in/queries.ts';
import { AuditTab } from './AuditTab.tsx';
import { AccountTab } from './account/AccountTab.tsx';
import { ConnectPageTab } from './ConnectPageTab.tsx';
import { EnvironmentsTab } from './EnvironmentsTab.tsx';
import { KeysTab } from './keys/KeysTab.tsx';
import { PeopleTab } from './people/PeopleTab.tsx';
import { VariablesTab } from './VariablesTab.tsx';

export function SettingsPage() {
  const { tab } = useSearch({ from: '/$environment/settings' });
  const navigate = useNavigate({ from: '/$environment/settings' });
  const may = useMay();
  const isOwner = useIsOwner();
  const tabs: [SettingsTab, string, ComponentType, boolean][] = [
    ['account', 'Your account', AccountTab, true],
    ['keys', 'Keys', KeysTab, may('keys')],
    ['variables', 'Variables', VariablesTab, may('environment:read')],
    ['connect-page', 'Connect page', ConnectPageTab, may('environment:read')],
    ['audit', 'Audit log', AuditTab, may('activity:read')],
    ['environments', 'Environments', EnvironmentsTab, isOwner],
    ['people', 'People', PeopleTab, isOwner],
  ];
  const shown = tabs.filter(([, , , isFor]) => isFor);
  const current = shown.some(([name]) => name === tab) ? tab : shown[0]?.[0];
  return (
    <Page
      title="Settings"
      about={
        <>
          Settings of this environment, of its users, and of your account.{' '}
          {current && <GuideLink to={current} />}
        </>
      }
    >
      <Tabs
        value={current ?? null}
        keepMounted={false}
        onChange={(next) => void navigate({ search: { tab: next as SettingsTab } })}
      >
        <TabRow open={current}>
          {shown.map(([name, label]) => (
            <Tabs.Tab key={name} value={name}>
              {label}
            </Tabs.Tab>
          ))}
        </TabRow>
        {shown.map(([name, , Content]) => (
          <Tabs.Panel key={name} value={name}>
            <Content />
          </Tabs.Panel>
        ))}
      </Tabs>
    </Page>
  );
}
